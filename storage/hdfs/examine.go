package hdfs

import (
	"context"
	"fmt"

	"github.com/colinmarc/hdfs/v2"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sluice-etl/sluice/storage"
)

var _ storage.Examiner = (*FS)(nil)

// safeModeGet asks for the safe mode and changes nothing: SAFEMODE_GET of the protocol.
const safeModeGet protoreflect.EnumNumber = 3

// A cluster is nearly full when less than a twentieth of it is free.
const littleOf = 20

// Examine tells of the safe mode, the room that is left, and blocks that are lost.
func (f *FS) Examine(ctx context.Context, _ storage.ExamineOptions, report func(storage.Remark)) {
	var safe bool
	var room hdfs.FsInfo
	err := f.cluster.call(ctx, func(c *client) error {
		resp, err := c.ask("setSafeMode", "SetSafeMode", map[protoreflect.Name]any{"action": safeModeGet})
		if err != nil {
			return err
		}
		if v, ok := field(resp, "result"); ok {
			safe = v.Bool()
		}
		room, err = c.StatFs()
		return err
	})
	if err != nil {
		report(storage.Remark{Check: "namenode", Err: f.wrap("examine", "", err)})
		return
	}
	if safe {
		report(storage.Remark{Check: "namenode", Detail: "it is in safe mode: files can be read and not written",
			Advice: "wait until enough datanodes have reported, or look at hdfs dfsadmin -safemode get"})
	} else {
		report(storage.Remark{Check: "namenode", Detail: "it is not in safe mode"})
	}
	report(spaceOf(&room))
	if room.MissingBlocks > 0 || room.CorruptBlocks > 0 {
		report(storage.Remark{Check: "blocks", Detail: fmt.Sprintf("%d are missing and %d corrupt in the cluster", room.MissingBlocks, room.CorruptBlocks),
			Advice: "look at hdfs fsck for files of this pipeline among them, and start the datanodes that are down"})
	}
}

// spaceOf tells what the cluster has free, copies included.
func spaceOf(room *hdfs.FsInfo) storage.Remark {
	const gib = 1 << 30
	r := storage.Remark{Check: "space", Detail: fmt.Sprintf("%.1f of %.1f GiB are free, for all copies", float64(room.Remaining)/gib, float64(room.Capacity)/gib)}
	if room.Remaining < room.Capacity/littleOf {
		r.Advice = "make room, or add datanodes"
	}
	return r
}
