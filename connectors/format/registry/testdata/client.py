"""Writes and reads values with Confluent's client:

client.py write KIND URL TOPIC            prints the value in base64
client.py write-header KIND URL TOPIC     prints the value and its header __value_schema_id
client.py read KIND URL TOPIC VALUE [HEADER]
"""
import base64
import functools
import json
import sys

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.serialization import MessageField, SerializationContext

AVRO = json.dumps({"type": "record", "name": "user", "namespace": "shop", "fields": [
    {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}}]})
JSON = json.dumps({"title": "user", "type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}, "required": ["id"]})


@functools.cache
def message():
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    f = descriptor_pb2.FileDescriptorProto(name="user.proto", package="shop", syntax="proto3")
    f.message_type.add(name="Other")
    m = f.message_type.add(name="User")
    m.field.add(name="id", number=1, type=3, label=1)
    m.field.add(name="name", number=2, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(f)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.User"))


def codec(kind, client, write, conf):
    if kind in ("avro", "bid"):
        from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
        return AvroSerializer(client, AVRO, conf=conf) if write else AvroDeserializer(client)
    if kind == "json":
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
        return JSONSerializer(JSON, client, conf=conf) if write else JSONDeserializer(JSON, schema_registry_client=client)
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    old = {"use.deprecated.format": False}
    return ProtobufSerializer(message(), client, old | conf) if write else ProtobufDeserializer(message(), old, client)


def register(kind, client, topic):
    """Registers the schema, so that the serializer looks it up with its GUID."""
    text = {"avro": AVRO, "json": JSON}.get(kind)
    if text is None:
        from confluent_kafka.schema_registry.protobuf import _schema_to_str
        text = _schema_to_str(message().DESCRIPTOR.file)
    client.register_schema(topic + "-value", Schema(text, {"avro": "AVRO", "json": "JSON"}.get(kind, "PROTOBUF")))


def value(kind):
    if kind == "avro":
        import datetime
        import decimal
        at = datetime.datetime(2026, 1, 31, 23, 59, 59, 500000, tzinfo=datetime.timezone.utc)
        return {"id": 2**53 + 1, "name": "a", "at": at, "price": decimal.Decimal("-1.10")}
    if kind == "bid":
        return {"price": {"n": 2**53 + 1}}
    if kind == "json":
        return {"id": 2**53 + 1, "name": "a"}
    return message()(id=2**53 + 1, name="a")


def main():
    mode, kind, url, topic = sys.argv[1:5]
    client = SchemaRegistryClient({"url": url})
    headers, conf = [], {}
    if mode == "write-header":
        register(kind, client, topic)
        conf = {"schema.id.serializer": header_schema_id_serializer, "auto.register.schemas": False}
    if len(sys.argv) > 6:
        headers = [("__value_schema_id", base64.b64decode(sys.argv[6]))]
    context = SerializationContext(topic, MessageField.VALUE, headers)
    c = codec(kind, client, mode != "read", conf)
    if mode != "read":
        parts = [c(value(kind), context)] + [v for _, v in headers]
        print(*(base64.b64encode(p).decode() for p in parts))
        return
    got = c(base64.b64decode(sys.argv[5]), context)
    print("same" if got == value(kind) else f"differs: {got!r}")


main()
