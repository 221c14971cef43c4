"""Durable streams, key-value buckets and leases, in a data folder of this node or at its hub."""

from __future__ import annotations

from tidewire.streams.bucket import Bucket, Entry
from tidewire.streams.consumer import Consumer
from tidewire.streams.event import DeadEvent, Event
from tidewire.streams.lease import Lease
from tidewire.streams.publisher import Ack, Publisher
from tidewire.streams.schedule import Schedule
from tidewire.streams.stream import ConsumerInfo, Stream, StreamInfo

__all__ = [
    "Ack",
    "Bucket",
    "Consumer",
    "ConsumerInfo",
    "DeadEvent",
    "Entry",
    "Event",
    "Lease",
    "Publisher",
    "Schedule",
    "Stream",
    "StreamInfo",
]
