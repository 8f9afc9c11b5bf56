from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HelloRequest(_message.Message):
    __slots__ = ("protocol_version", "client")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    client: str
    def __init__(self, protocol_version: _Optional[int] = ..., client: _Optional[str] = ...) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ("protocol_version", "agent_version", "onnxruntime_version", "python_version", "providers", "capabilities", "device")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    ONNXRUNTIME_VERSION_FIELD_NUMBER: _ClassVar[int]
    PYTHON_VERSION_FIELD_NUMBER: _ClassVar[int]
    PROVIDERS_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    agent_version: str
    onnxruntime_version: str
    python_version: str
    providers: _containers.RepeatedScalarFieldContainer[str]
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    device: Device
    def __init__(self, protocol_version: _Optional[int] = ..., agent_version: _Optional[str] = ..., onnxruntime_version: _Optional[str] = ..., python_version: _Optional[str] = ..., providers: _Optional[_Iterable[str]] = ..., capabilities: _Optional[_Iterable[str]] = ..., device: _Optional[_Union[Device, _Mapping]] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("machine", "system", "processor", "cores", "memory_bytes", "cpu_features")
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_FIELD_NUMBER: _ClassVar[int]
    PROCESSOR_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_FEATURES_FIELD_NUMBER: _ClassVar[int]
    machine: str
    system: str
    processor: str
    cores: int
    memory_bytes: int
    cpu_features: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, machine: _Optional[str] = ..., system: _Optional[str] = ..., processor: _Optional[str] = ..., cores: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., cpu_features: _Optional[_Iterable[str]] = ...) -> None: ...
