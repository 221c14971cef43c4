"""The tools, prompts and resources that the suite asks for, with the names of this project."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass

import tidewire as tw

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
SILENCE = b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x40\x1f\x00\x00\x01\x00\x08\x00data\x00\x00\x00\x00"


@dataclass
class address:
    """Where somebody lives."""

    street: str = ""
    city: str = ""


class Test(tw.Service, visibility="public"):
    """Answers the scenarios of the suite."""

    @tw.method
    def simple_text(self) -> str:
        """Return a text."""
        return "This is a simple text response for testing."

    @tw.method
    def image_content(self) -> bytes:
        """Return a picture."""
        return PIXEL

    @tw.method
    def audio_content(self) -> bytes:
        """Return a sound."""
        return SILENCE

    @tw.method
    def error_handling(self) -> None:
        """Fail."""
        raise RuntimeError("This tool intentionally returns an error for testing")

    @tw.method
    def tool_with_progress(self) -> Iterator[str]:
        """Report three steps."""
        yield from ("0/100", "50/100", "100/100")


class JsonSchema(tw.Service, visibility="public"):
    """Has a parameter with a schema of its own."""

    @tw.method(name="2020_12_tool")
    def tool(self, name: str = "", address: address | None = None) -> str:
        """Return the name."""
        return name


async def serve(node: tw.Node) -> None:
    """Serve the tools, and write the resources."""
    await node.serve(Test(), name="test")
    await node.serve(JsonSchema(), name="json_schema")
    static, template = await node.kv("static"), await node.kv("template")
    await static.put("text", "This is the content of the static text resource.")
    await static.put("binary", PIXEL)
    await template.put("123", {"id": "123"})
    await node.stream("watched", subjects=["watched.>"])
