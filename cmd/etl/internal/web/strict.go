package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
)

// jsonFormat reads bodies strictly: null is no value of any field, and whole numbers
// may be written as 3.0, as JSON Schema has them.
var jsonFormat = huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: readStrictly}

func readStrictly(data []byte, into any) error {
	var read any
	if err := json.Unmarshal(data, &read); err != nil { // also where more than one value is there
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&read); err != nil {
		return err
	}
	read, err := wholeNumbers(read)
	if err != nil {
		return err
	}
	if data, err = json.Marshal(read); err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// wholeNumbers writes whole numbers without a fraction and an exponent.
func wholeNumbers(value any) (any, error) {
	var err error
	switch v := value.(type) {
	case nil:
		return nil, errors.New("null is no value: leave the field out")
	case map[string]any:
		for key := range v {
			if v[key], err = wholeNumbers(v[key]); err != nil {
				return nil, err
			}
		}
	case []any:
		for i := range v {
			if v[i], err = wholeNumbers(v[i]); err != nil {
				return nil, err
			}
		}
	case json.Number:
		const exact = 1 << 53
		_, plain := strconv.ParseInt(string(v), 10, 64)
		if f, err := v.Float64(); plain != nil && err == nil && f == math.Trunc(f) && math.Abs(f) < exact {
			return json.Number(strconv.FormatInt(int64(f), 10)), nil
		}
	}
	return value, nil
}
