from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
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
    __slots__ = ("protocol_version", "agent_version", "onnxruntime_version", "python_version", "providers", "capabilities", "device", "memory_limit_bytes", "store_free_bytes", "busy")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    ONNXRUNTIME_VERSION_FIELD_NUMBER: _ClassVar[int]
    PYTHON_VERSION_FIELD_NUMBER: _ClassVar[int]
    PROVIDERS_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    STORE_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    agent_version: str
    onnxruntime_version: str
    python_version: str
    providers: _containers.RepeatedScalarFieldContainer[str]
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    device: Device
    memory_limit_bytes: int
    store_free_bytes: int
    busy: str
    def __init__(self, protocol_version: _Optional[int] = ..., agent_version: _Optional[str] = ..., onnxruntime_version: _Optional[str] = ..., python_version: _Optional[str] = ..., providers: _Optional[_Iterable[str]] = ..., capabilities: _Optional[_Iterable[str]] = ..., device: _Optional[_Union[Device, _Mapping]] = ..., memory_limit_bytes: _Optional[int] = ..., store_free_bytes: _Optional[int] = ..., busy: _Optional[str] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("machine", "system", "processor", "cores", "memory_bytes", "cpu_features", "memory_available_bytes", "governor", "frequency_khz", "frequency_max_khz", "temperature_celsius", "throttle_count", "energy_sources")
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_FIELD_NUMBER: _ClassVar[int]
    PROCESSOR_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_FEATURES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_AVAILABLE_BYTES_FIELD_NUMBER: _ClassVar[int]
    GOVERNOR_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_KHZ_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_MAX_KHZ_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_CELSIUS_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_COUNT_FIELD_NUMBER: _ClassVar[int]
    ENERGY_SOURCES_FIELD_NUMBER: _ClassVar[int]
    machine: str
    system: str
    processor: str
    cores: int
    memory_bytes: int
    cpu_features: _containers.RepeatedScalarFieldContainer[str]
    memory_available_bytes: int
    governor: str
    frequency_khz: int
    frequency_max_khz: int
    temperature_celsius: float
    throttle_count: int
    energy_sources: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, machine: _Optional[str] = ..., system: _Optional[str] = ..., processor: _Optional[str] = ..., cores: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., cpu_features: _Optional[_Iterable[str]] = ..., memory_available_bytes: _Optional[int] = ..., governor: _Optional[str] = ..., frequency_khz: _Optional[int] = ..., frequency_max_khz: _Optional[int] = ..., temperature_celsius: _Optional[float] = ..., throttle_count: _Optional[int] = ..., energy_sources: _Optional[_Iterable[str]] = ...) -> None: ...

class FileEntry(_message.Message):
    __slots__ = ("name", "bytes", "sha256")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    name: str
    bytes: int
    sha256: str
    def __init__(self, name: _Optional[str] = ..., bytes: _Optional[int] = ..., sha256: _Optional[str] = ...) -> None: ...

class Manifest(_message.Message):
    __slots__ = ("files", "label")
    FILES_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[FileEntry]
    label: str
    def __init__(self, files: _Optional[_Iterable[_Union[FileEntry, _Mapping]]] = ..., label: _Optional[str] = ...) -> None: ...

class ModelRef(_message.Message):
    __slots__ = ("digest",)
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    digest: str
    def __init__(self, digest: _Optional[str] = ...) -> None: ...

class UploadState(_message.Message):
    __slots__ = ("digest", "complete", "received")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    digest: str
    complete: bool
    received: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, digest: _Optional[str] = ..., complete: bool = ..., received: _Optional[_Iterable[int]] = ...) -> None: ...

class UploadPiece(_message.Message):
    __slots__ = ("data", "digest", "file", "offset")
    DATA_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    digest: str
    file: int
    offset: int
    def __init__(self, data: _Optional[bytes] = ..., digest: _Optional[str] = ..., file: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ModelEntry(_message.Message):
    __slots__ = ("digest", "label", "files", "complete", "last_used")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    LAST_USED_FIELD_NUMBER: _ClassVar[int]
    digest: str
    label: str
    files: _containers.RepeatedCompositeFieldContainer[FileEntry]
    complete: bool
    last_used: float
    def __init__(self, digest: _Optional[str] = ..., label: _Optional[str] = ..., files: _Optional[_Iterable[_Union[FileEntry, _Mapping]]] = ..., complete: bool = ..., last_used: _Optional[float] = ...) -> None: ...

class ListModelsReply(_message.Message):
    __slots__ = ("models", "used_bytes", "quota_bytes")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    QUOTA_BYTES_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[ModelEntry]
    used_bytes: int
    quota_bytes: int
    def __init__(self, models: _Optional[_Iterable[_Union[ModelEntry, _Mapping]]] = ..., used_bytes: _Optional[int] = ..., quota_bytes: _Optional[int] = ...) -> None: ...

class DeleteModelReply(_message.Message):
    __slots__ = ("freed_bytes",)
    FREED_BYTES_FIELD_NUMBER: _ClassVar[int]
    freed_bytes: int
    def __init__(self, freed_bytes: _Optional[int] = ...) -> None: ...

class SessionSettings(_message.Message):
    __slots__ = ("level", "threads", "provider", "config", "provider_options")
    class Level(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ALL: _ClassVar[SessionSettings.Level]
        NONE: _ClassVar[SessionSettings.Level]
        BASIC: _ClassVar[SessionSettings.Level]
        EXTENDED: _ClassVar[SessionSettings.Level]
    ALL: SessionSettings.Level
    NONE: SessionSettings.Level
    BASIC: SessionSettings.Level
    EXTENDED: SessionSettings.Level
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ProviderOptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    level: SessionSettings.Level
    threads: int
    provider: str
    config: _containers.ScalarMap[str, str]
    provider_options: _containers.ScalarMap[str, str]
    def __init__(self, level: _Optional[_Union[SessionSettings.Level, str]] = ..., threads: _Optional[int] = ..., provider: _Optional[str] = ..., config: _Optional[_Mapping[str, str]] = ..., provider_options: _Optional[_Mapping[str, str]] = ...) -> None: ...

class OptimizeRequest(_message.Message):
    __slots__ = ("model", "settings", "value_types")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    VALUE_TYPES_FIELD_NUMBER: _ClassVar[int]
    model: ModelRef
    settings: SessionSettings
    value_types: bool
    def __init__(self, model: _Optional[_Union[ModelRef, _Mapping]] = ..., settings: _Optional[_Union[SessionSettings, _Mapping]] = ..., value_types: bool = ...) -> None: ...

class ValueInfo(_message.Message):
    __slots__ = ("name", "type", "shape", "symbols")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    SYMBOLS_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    symbols: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., symbols: _Optional[_Iterable[str]] = ...) -> None: ...

class OptimizeReply(_message.Message):
    __slots__ = ("data", "file", "inputs", "outputs", "values", "done")
    DATA_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    file: str
    inputs: _containers.RepeatedCompositeFieldContainer[ValueInfo]
    outputs: _containers.RepeatedCompositeFieldContainer[ValueInfo]
    values: _containers.RepeatedCompositeFieldContainer[ValueInfo]
    done: bool
    def __init__(self, data: _Optional[bytes] = ..., file: _Optional[str] = ..., inputs: _Optional[_Iterable[_Union[ValueInfo, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[ValueInfo, _Mapping]]] = ..., values: _Optional[_Iterable[_Union[ValueInfo, _Mapping]]] = ..., done: bool = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ("file", "inputs", "outputs", "taps", "drop", "expected_bytes")
    FILE_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    TAPS_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_BYTES_FIELD_NUMBER: _ClassVar[int]
    file: str
    inputs: _containers.RepeatedScalarFieldContainer[str]
    outputs: _containers.RepeatedScalarFieldContainer[str]
    taps: _containers.RepeatedScalarFieldContainer[str]
    drop: _containers.RepeatedScalarFieldContainer[str]
    expected_bytes: int
    def __init__(self, file: _Optional[str] = ..., inputs: _Optional[_Iterable[str]] = ..., outputs: _Optional[_Iterable[str]] = ..., taps: _Optional[_Iterable[str]] = ..., drop: _Optional[_Iterable[str]] = ..., expected_bytes: _Optional[int] = ...) -> None: ...

class Edges(_message.Message):
    __slots__ = ("edges",)
    EDGES_FIELD_NUMBER: _ClassVar[int]
    edges: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, edges: _Optional[_Iterable[float]] = ...) -> None: ...

class RunStart(_message.Message):
    __slots__ = ("model", "settings", "segments", "outputs", "taps", "memory_bytes", "edges", "warm_up", "repeats", "floor_bytes")
    class Taps(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        RAW: _ClassVar[RunStart.Taps]
        SUMMARY: _ClassVar[RunStart.Taps]
    RAW: RunStart.Taps
    SUMMARY: RunStart.Taps
    class EdgesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Edges
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Edges, _Mapping]] = ...) -> None: ...
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    TAPS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    WARM_UP_FIELD_NUMBER: _ClassVar[int]
    REPEATS_FIELD_NUMBER: _ClassVar[int]
    FLOOR_BYTES_FIELD_NUMBER: _ClassVar[int]
    model: ModelRef
    settings: SessionSettings
    segments: _containers.RepeatedCompositeFieldContainer[Segment]
    outputs: _containers.RepeatedScalarFieldContainer[str]
    taps: RunStart.Taps
    memory_bytes: int
    edges: _containers.MessageMap[str, Edges]
    warm_up: int
    repeats: int
    floor_bytes: int
    def __init__(self, model: _Optional[_Union[ModelRef, _Mapping]] = ..., settings: _Optional[_Union[SessionSettings, _Mapping]] = ..., segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ..., outputs: _Optional[_Iterable[str]] = ..., taps: _Optional[_Union[RunStart.Taps, str]] = ..., memory_bytes: _Optional[int] = ..., edges: _Optional[_Mapping[str, Edges]] = ..., warm_up: _Optional[int] = ..., repeats: _Optional[int] = ..., floor_bytes: _Optional[int] = ...) -> None: ...

class TensorHead(_message.Message):
    __slots__ = ("name", "dtype", "shape", "bytes", "crc32")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    bytes: int
    crc32: int
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., bytes: _Optional[int] = ..., crc32: _Optional[int] = ...) -> None: ...

class RunRequest(_message.Message):
    __slots__ = ("data", "start", "tensor", "end_of_batch")
    DATA_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    END_OF_BATCH_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    start: RunStart
    tensor: TensorHead
    end_of_batch: bool
    def __init__(self, data: _Optional[bytes] = ..., start: _Optional[_Union[RunStart, _Mapping]] = ..., tensor: _Optional[_Union[TensorHead, _Mapping]] = ..., end_of_batch: bool = ...) -> None: ...

class TapSummary(_message.Message):
    __slots__ = ("name", "count", "min", "max", "mean", "std", "l1", "l2", "nan_count", "inf_count", "zero_count", "p99", "shape", "dtype", "histogram")
    NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    STD_FIELD_NUMBER: _ClassVar[int]
    L1_FIELD_NUMBER: _ClassVar[int]
    L2_FIELD_NUMBER: _ClassVar[int]
    NAN_COUNT_FIELD_NUMBER: _ClassVar[int]
    INF_COUNT_FIELD_NUMBER: _ClassVar[int]
    ZERO_COUNT_FIELD_NUMBER: _ClassVar[int]
    P99_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    HISTOGRAM_FIELD_NUMBER: _ClassVar[int]
    name: str
    count: int
    min: float
    max: float
    mean: float
    std: float
    l1: float
    l2: float
    nan_count: int
    inf_count: int
    zero_count: int
    p99: float
    shape: _containers.RepeatedScalarFieldContainer[int]
    dtype: str
    histogram: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., count: _Optional[int] = ..., min: _Optional[float] = ..., max: _Optional[float] = ..., mean: _Optional[float] = ..., std: _Optional[float] = ..., l1: _Optional[float] = ..., l2: _Optional[float] = ..., nan_count: _Optional[int] = ..., inf_count: _Optional[int] = ..., zero_count: _Optional[int] = ..., p99: _Optional[float] = ..., shape: _Optional[_Iterable[int]] = ..., dtype: _Optional[str] = ..., histogram: _Optional[_Iterable[int]] = ...) -> None: ...

class RunReply(_message.Message):
    __slots__ = ("data", "batch", "tensor", "output", "summary", "end_of_batch", "seconds", "peak_bytes")
    DATA_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    END_OF_BATCH_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    batch: int
    tensor: TensorHead
    output: bool
    summary: _containers.RepeatedCompositeFieldContainer[TapSummary]
    end_of_batch: bool
    seconds: float
    peak_bytes: int
    def __init__(self, data: _Optional[bytes] = ..., batch: _Optional[int] = ..., tensor: _Optional[_Union[TensorHead, _Mapping]] = ..., output: bool = ..., summary: _Optional[_Iterable[_Union[TapSummary, _Mapping]]] = ..., end_of_batch: bool = ..., seconds: _Optional[float] = ..., peak_bytes: _Optional[int] = ...) -> None: ...

class NodeTime(_message.Message):
    __slots__ = ("node", "op_type", "provider", "p50_us", "p90_us", "p99_us")
    NODE_FIELD_NUMBER: _ClassVar[int]
    OP_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    P50_US_FIELD_NUMBER: _ClassVar[int]
    P90_US_FIELD_NUMBER: _ClassVar[int]
    P99_US_FIELD_NUMBER: _ClassVar[int]
    node: str
    op_type: str
    provider: str
    p50_us: float
    p90_us: float
    p99_us: float
    def __init__(self, node: _Optional[str] = ..., op_type: _Optional[str] = ..., provider: _Optional[str] = ..., p50_us: _Optional[float] = ..., p90_us: _Optional[float] = ..., p99_us: _Optional[float] = ...) -> None: ...

class ProfileReply(_message.Message):
    __slots__ = ("nodes", "total_p50_us", "total_p90_us", "total_p99_us", "repeats", "nodes_p50_us", "plain_p50_us", "energy_joules", "energy_source", "before", "after")
    NODES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_P50_US_FIELD_NUMBER: _ClassVar[int]
    TOTAL_P90_US_FIELD_NUMBER: _ClassVar[int]
    TOTAL_P99_US_FIELD_NUMBER: _ClassVar[int]
    REPEATS_FIELD_NUMBER: _ClassVar[int]
    NODES_P50_US_FIELD_NUMBER: _ClassVar[int]
    PLAIN_P50_US_FIELD_NUMBER: _ClassVar[int]
    ENERGY_JOULES_FIELD_NUMBER: _ClassVar[int]
    ENERGY_SOURCE_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeTime]
    total_p50_us: float
    total_p90_us: float
    total_p99_us: float
    repeats: int
    nodes_p50_us: float
    plain_p50_us: float
    energy_joules: float
    energy_source: str
    before: Device
    after: Device
    def __init__(self, nodes: _Optional[_Iterable[_Union[NodeTime, _Mapping]]] = ..., total_p50_us: _Optional[float] = ..., total_p90_us: _Optional[float] = ..., total_p99_us: _Optional[float] = ..., repeats: _Optional[int] = ..., nodes_p50_us: _Optional[float] = ..., plain_p50_us: _Optional[float] = ..., energy_joules: _Optional[float] = ..., energy_source: _Optional[str] = ..., before: _Optional[_Union[Device, _Mapping]] = ..., after: _Optional[_Union[Device, _Mapping]] = ...) -> None: ...
