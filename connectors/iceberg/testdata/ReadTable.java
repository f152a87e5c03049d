import com.fasterxml.jackson.databind.ObjectMapper;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.PartitionKey;
import org.apache.iceberg.StaticTableOperations;
import org.apache.iceberg.Table;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.InternalRecordWrapper;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.data.parquet.GenericParquetReaders;
import org.apache.iceberg.hadoop.HadoopFileIO;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.parquet.Parquet;
import org.apache.iceberg.types.Types;
import org.apache.iceberg.util.StructLikeWrapper;

/**
 * Prints the rows of the current snapshot of a table, which a metadata file names, as one JSON
 * object a line, and checks that every data file holds rows of its own partition only. Floats are
 * printed as their bits, times as microseconds, bytes as base64, maps as lists of entries.
 */
public class ReadTable {
  public static void main(String[] args) throws Exception {
    HadoopFileIO io = new HadoopFileIO(new Configuration());
    Table table = new BaseTable(new StaticTableOperations(args[0], io), "table");
    ObjectMapper json = new ObjectMapper();
    StringBuilder out = new StringBuilder();
    try (CloseableIterable<Record> rows = IcebergGenerics.read(table).build()) {
      for (Record row : rows) {
        out.append(json.writeValueAsString(show(row))).append('\n');
      }
    }
    checkPartitions(table);
    System.out.print(out);
  }

  static void checkPartitions(Table table) throws Exception {
    try (CloseableIterable<FileScanTask> tasks = table.newScan().planFiles()) {
      for (FileScanTask task : tasks) {
        PartitionKey key = new PartitionKey(task.spec(), table.schema());
        InternalRecordWrapper wrapper = new InternalRecordWrapper(table.schema().asStruct());
        StructLikeWrapper own = StructLikeWrapper.forType(task.spec().partitionType()).set(task.file().partition());
        try (CloseableIterable<Record> rows =
            Parquet.read(table.io().newInputFile(task.file().location()))
                .project(table.schema())
                .createReaderFunc(schema -> GenericParquetReaders.buildReader(table.schema(), schema))
                .build()) {
          for (Record row : rows) {
            key.partition(wrapper.wrap(row));
            if (!StructLikeWrapper.forType(task.spec().partitionType()).set(key).equals(own)) {
              throw new IllegalStateException("row " + row + " is of partition " + key + ", and in a file of " + task.file().partition());
            }
          }
        }
      }
    }
  }

  static Object show(Object v) {
    if (v instanceof Record r) {
      Map<String, Object> out = new LinkedHashMap<>();
      for (Types.NestedField f : r.struct().fields()) {
        out.put(f.name(), show(r.getField(f.name())));
      }
      return out;
    }
    if (v instanceof List<?> list) {
      List<Object> out = new ArrayList<>();
      list.forEach(x -> out.add(show(x)));
      return out;
    }
    if (v instanceof Map<?, ?> map) {
      List<Object> out = new ArrayList<>();
      map.forEach((k, x) -> out.add(java.util.Arrays.asList(show(k), show(x))));
      return out;
    }
    if (v instanceof Float f && f.isNaN() || v instanceof Double n && n.isNaN()) return "NaN";
    if (v instanceof Float f) return String.format("%08x", Float.floatToIntBits(f));
    if (v instanceof Double d) return String.format("%016x", Double.doubleToLongBits(d));
    if (v instanceof BigDecimal d) return d.toPlainString();
    if (v instanceof ByteBuffer b) {
      byte[] bytes = new byte[b.remaining()];
      b.duplicate().get(bytes);
      return Base64.getEncoder().encodeToString(bytes);
    }
    if (v instanceof byte[] b) return Base64.getEncoder().encodeToString(b);
    if (v instanceof LocalTime t) return t.toNanoOfDay() / 1000;
    if (v instanceof LocalDateTime t) return micros(t);
    if (v instanceof OffsetDateTime t) return micros(t.withOffsetSameInstant(ZoneOffset.UTC).toLocalDateTime());
    if (v == null || v instanceof Boolean || v instanceof Number) return v;
    return v.toString(); // text, a date, a UUID
  }

  static long micros(LocalDateTime t) {
    return ChronoUnit.MICROS.between(LocalDate.EPOCH.atStartOfDay(), t);
  }
}
