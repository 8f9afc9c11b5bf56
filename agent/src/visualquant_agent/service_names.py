"""What host and agent must agree on beside the schema; imports nothing heavy."""

from __future__ import annotations

PROTOCOL_VERSION = 1
SERVICE_NAME = "visualquant_agent.wire.v1.Agent"
DEFAULT_PORT = 50551
