package compress

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestPiecesReadAsOneFile(t *testing.T) {
	for _, name := range Names {
		t.Run(name, func(t *testing.T) {
			var file, want []byte
			p := NewPacker(name)
			for i := range 5 {
				piece := []byte(strings.Repeat(fmt.Sprintf("piece %d of the file\n", i), 1+i*5000))
				want = append(want, piece...)
				var err error
				if file, err = p.Pack(file, piece, 1); err != nil {
					t.Fatal(err)
				}
			}
			r, err := NewReader(name, bytes.NewReader(file), int64(len(want)))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes of %d came back, %v", len(got), len(want), err)
			}
			if ByName("x.jsonl"+Ending(name)) != name {
				t.Errorf("the ending %q does not tell", Ending(name))
			}
		})
	}
}

func TestABombIsAnError(t *testing.T) {
	for _, name := range Names {
		t.Run(name, func(t *testing.T) {
			file, err := NewPacker(name).Pack(nil, make([]byte, 1<<20), 1)
			if err != nil {
				t.Fatal(err)
			}
			r, err := NewReader(name, bytes.NewReader(file), 1000)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			got, err := io.ReadAll(r)
			if len(got) != 1000 || !errors.Is(err, ErrTooLarge) {
				t.Errorf("%d bytes came out, %v", len(got), err)
			}
		})
	}
}

func TestDamagedFilesAreToldAndEmptyOnesAreNot(t *testing.T) {
	for _, name := range Names[1:] {
		t.Run(name, func(t *testing.T) {
			text := []byte{}
			for i := range 500 {
				text = fmt.Appendf(text, "line %x of the file\n", i*i*7919)
			}
			file, err := NewPacker(name).Pack(nil, text, 1)
			if err != nil {
				t.Fatal(err)
			}
			whole := map[int]bool{0: true} // where nothing is missing
			if name == Snappy {
				whole[10] = true // nothing tells of the end of such a stream
			}
			for cut := 0; cut < len(file); cut += 1 + cut/50 {
				r, err := NewReader(name, bytes.NewReader(file[:cut]), 0)
				if err == nil {
					_, err = io.ReadAll(r)
					_ = r.Close()
				}
				if (err == nil) != whole[cut] || err != nil && !errors.Is(err, ErrDamaged) {
					t.Errorf("cut at %d of %d: %v", cut, len(file), err)
				}
			}
			file[len(file)/2] ^= 0x55
			r, err := NewReader(name, bytes.NewReader(file), 0)
			if err == nil {
				_, err = io.ReadAll(r)
				_ = r.Close()
			}
			if err == nil || !errors.Is(err, ErrDamaged) {
				t.Errorf("with a changed byte: %v", err)
			}
		})
	}
}
