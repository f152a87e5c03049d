package iceberg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	"github.com/sluice-etl/sluice/connectors"
)

// tableKey is the columns that tell the rows of a table apart, in the order of its schema.
type tableKey struct {
	names []string
	ids   []int
}

// firstDeletes is the table format that knows deletes of rows.
const firstDeletes = 2

// key finds the key columns of a table: those of the names, or else the table's identifier
// fields. It reports every reason for which rows cannot be replaced by them.
func (v *view) key(names []string) (*tableKey, error) {
	m := v.t.Metadata()
	if m.Version() < firstDeletes {
		return nil, fmt.Errorf("it is of format %d, and only from %d on can rows be replaced: set its property format-version to 2", m.Version(), firstDeletes)
	}
	key, err := keyOf(v.t.Schema(), names)
	if err != nil {
		return nil, err
	}
	spec := m.PartitionSpec()
	return key, checkKeyPartitions(v.t.Schema(), &spec, key)
}

func keyOf(schema *ice.Schema, names []string) (*tableKey, error) {
	if len(names) == 0 && len(schema.IdentifierFieldIDs) == 0 {
		return nil, errors.New("it has no identifier fields: name the columns that tell rows apart under key")
	}
	key := &tableKey{}
	var errs []error
	for _, f := range schema.Fields() {
		if len(names) == 0 && slices.Contains(schema.IdentifierFieldIDs, f.ID) || slices.Contains(names, f.Name) {
			key.names, key.ids = append(key.names, f.Name), append(key.ids, f.ID)
			errs = append(errs, checkKeyType(f))
		}
	}
	for _, name := range names {
		if !slices.Contains(key.names, name) {
			errs = append(errs, fmt.Errorf("it has no column %s, which is in the key", name))
		}
	}
	if len(names) == 0 && len(key.ids) != len(schema.IdentifierFieldIDs) {
		errs = append(errs, errors.New("an identifier field of it is inside of a struct: name other columns under key"))
	}
	return key, errors.Join(errs...)
}

// among reports key columns that rows of the columns do not have; none are known for nil.
func (k *tableKey) among(cols []connectors.Column) error {
	var errs []error
	for _, name := range k.names {
		if cols != nil && !slices.ContainsFunc(cols, func(c connectors.Column) bool { return c.Name == name }) {
			errs = append(errs, fmt.Errorf("the rows have no column %s, which is in the key (%s)", name, strings.Join(k.names, ", ")))
		}
	}
	return errors.Join(errs...)
}

// checkKeyType refuses types that have no one way to be equal. Of the deletes of fixed
// bytes in one file Iceberg's Java library, up to 1.12 at least, finds the last one only.
func checkKeyType(f ice.NestedField) error {
	switch f.Type.(type) {
	case ice.BooleanType, ice.Int32Type, ice.Int64Type, ice.DecimalType, ice.DateType, ice.TimeType, ice.TimestampType, ice.TimestampTzType,
		ice.TimestampNsType, ice.TimestampTzNsType, ice.StringType, ice.UUIDType, ice.BinaryType:
		return nil
	}
	return fmt.Errorf("column %s (%s) cannot be in a key: only columns of one value that is neither float nor fixed can", f.Name, f.Type)
}

// checkKeyPartitions reports partitions that a row can move between: the delete of its
// older version is looked for in the partition of the newer one.
func checkKeyPartitions(schema *ice.Schema, spec *ice.PartitionSpec, key *tableKey) error {
	if spec.IsUnpartitioned() {
		return nil
	}
	var errs []error
	for _, f := range spec.Fields() {
		if _, void := f.Transform.(ice.VoidTransform); void || slices.Contains(key.ids, f.SourceID()) {
			continue
		}
		name, _ := schema.FindColumnName(f.SourceID())
		errs = append(errs, fmt.Errorf("it is partitioned by %s, and the key (%s) does not have %s: a row that moves to another partition would stay in the old one too; add %s to the key, or partition the table by columns of the key",
			f.Name, strings.Join(key.names, ", "), name, name))
	}
	return errors.Join(errs...)
}

// writeDeletes writes keys into delete files, which are durable then.
func (v *view) writeDeletes(ctx context.Context, key *tableKey, keys arrow.RecordBatch) ([]ice.DataFile, error) {
	tx := v.t.NewTransaction() // never committed
	if err := tx.SetProperties(boundless(v.t.Schema(), key)); err != nil {
		return nil, err
	}
	one := func(yield func(arrow.RecordBatch, error) bool) { yield(keys, nil) }
	return tx.WriteEqualityDeletes(ctx, key.ids, one)
}

// boundless are the properties by which files of keys have no bounds of UUIDs: Iceberg's
// Java library, up to 1.12 at least, compares them as signed numbers, and passes over
// deletes between bounds of both signs.
func boundless(schema *ice.Schema, key *tableKey) ice.Properties {
	props := ice.Properties{}
	for _, id := range key.ids {
		if f, ok := schema.FindFieldByID(id); ok && f.Type.Equals(ice.PrimitiveTypes.UUID) {
			props[table.MetricsModeColumnConfPrefix+"."+f.Name] = "counts"
		}
	}
	return props
}

// takesDeletes reports why the deletes of files would miss rows of the table as it is now.
// A delete reaches the data files that were written with its own partition spec, and one
// without partitions reaches all.
func (v *view) takesDeletes(ctx context.Context, files []*fileSet) error {
	for _, f := range files {
		if len(f.Deletes) == 0 {
			continue
		}
		if err := v.reaches(ctx, f.Spec); err != nil {
			return err
		}
		for _, id := range f.Key {
			if _, ok := v.t.Schema().FindFieldByID(id); !ok {
				return fmt.Errorf("%w: a column of the key was removed from the table since its files were written", connectors.ErrLost)
			}
		}
	}
	return nil
}

// errSpecs says that a table has data files that deletes would not reach.
var errSpecs = errors.New("it has data files of another partitioning than the current one, which deletes would not reach: rewrite them first, as with rewrite_data_files and rewrite-all")

// reaches reports errSpecs if deletes of a partition spec miss data files of the branch.
func (v *view) reaches(ctx context.Context, id int) error {
	spec := v.t.Metadata().PartitionSpecByID(id)
	head := v.t.SnapshotByName(v.branch)
	if spec == nil || spec.IsUnpartitioned() || head == nil {
		return nil
	}
	files, err := v.t.FS(ctx)
	if err != nil {
		return err
	}
	manifests, err := head.Manifests(files)
	if err != nil {
		return fmt.Errorf("read the list of manifests: %w", err)
	}
	for _, m := range manifests {
		if m.ManifestContent() == ice.ManifestContentData && int(m.PartitionSpecID()) != id && (m.HasAddedFiles() || m.HasExistingFiles()) {
			return errSpecs
		}
	}
	return nil
}
