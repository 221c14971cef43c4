"""``tidewire log backup`` and ``tidewire log restore``: copies of a data folder in use.

The order of its steps makes the copy consistent without coordination with the writer:

1. Files only grow, and each write follows the one before. The last byte that is not zero belongs to
   a write whose predecessors are whole. A copy that ends there ends like a file after a crash.
2. The writer stores an event before its journal refers to it. So the end of the journal is read
   before the ends of the streams.
3. The journal records a removal before files are deleted. So no file may appear or disappear around
   step 2. All files are open by then, so that later deletions do not affect the copy.
4. The journal is written last: Tidewire refuses to open a copy without it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import shutil
from io import FileIO
from pathlib import Path

import tidewire as tw
from tidewire._binding import check_folder
from tidewire.commands.place import require_data_folder

ATTEMPTS = 10
_CHUNK = 1 << 18
_NO_DATA = ("tidewire.lock", "lost+found")


def copy_folder(source: Path, target: Path) -> dict[str, int]:
    """Copy a data folder into a new or empty one, check the copy, and return its files and bytes.

    Raises NotFound, InvalidArgument for a target that is not empty, DataInUse if a program has the
    target open, DataCorrupt for a damaged source, HomeBusy if each attempt missed deleted files.
    """
    require_data_folder("source", source)
    _require_empty(target)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        target.mkdir(parents=True, exist_ok=True)
        with open(target / _NO_DATA[0], "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _require_empty(target)
            try:
                return _copy_until_whole(source, target)
            except BaseException:
                for part in ("state", "streams"):
                    shutil.rmtree(target / part, ignore_errors=True)
                raise
    except BlockingIOError:
        raise tw.DataInUse(f"target: another program has {str(target)!r} open; end it, or give a new folder") from None
    except OSError as error:
        raise tw.HomeError(f"copy: {error}; free space, or give a folder that can be written", kind="disk") from error


def _require_empty(target: Path) -> None:
    if target.exists() and any(one.name not in _NO_DATA for one in target.iterdir()):
        raise tw.InvalidArgument(f"target: {str(target)!r} is not empty: give a new folder, or move its content away")


def _copy_until_whole(source: Path, target: Path) -> dict[str, int]:
    sealed: dict[str, int] = {}
    damaged: list[str] = []
    for _ in range(ATTEMPTS):
        shutil.rmtree(target / "state", ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            _copy_once(source, target, sealed)
            files = check_folder(str(target))
            before, damaged = damaged, [f"{file['file']}: {file['damage']}" for file in files if file["damage"]]
            if not damaged:
                return {"files": len(files), "bytes": sum(file["bytes"] for file in files)}
            if damaged == before:
                raise tw.DataCorrupt(f"{source}: {damaged[0]}; rescue the intact part with `tidewire log salvage`")
            sealed.clear()
    raise tw.HomeBusy(f"{source}: files went in each of {ATTEMPTS} attempts to copy them; try again after a pause")


def _copy_once(source: Path, target: Path, sealed: dict[str, int]) -> None:
    """Copy all files except sealed segments of earlier attempts. Raise FileNotFoundError if a file
    was deleted meanwhile.
    """
    _copy_sealed(source, target, sealed)
    with contextlib.ExitStack() as stack:
        files = _log_files(source)
        unsealed = [name for name, inode in files.items() if sealed.get(name) != inode]
        # A file that is deleted later stays readable here.
        readers = {name: stack.enter_context(open(source / name, "rb", 0)) for name in unsealed}
        journal = {name: _end(reader) for name, reader in readers.items() if name.startswith("state/")}
        if _log_files(source) != files:
            raise FileNotFoundError
        ends = journal | {name: _end(reader) for name, reader in readers.items() if name not in journal}
        for old in target.glob("streams/*/*"):
            if str(old.relative_to(target).with_suffix(".log")) not in files:
                old.unlink()
        for name in sorted(unsealed, key=lambda name: name in journal):
            if name in journal:
                _sync(*target.glob("streams/*"), *target.glob("streams"))
            _copy(readers[name], target / name, ends[name])
    _sync(target / "state", target, target.resolve().parent)


def _copy_sealed(source: Path, target: Path, sealed: dict[str, int]) -> None:
    """Copy the sealed segments, which are complete, each with its index."""
    files = _log_files(source)
    newest = {Path(name).parent: name for name in files}.values()
    for name in files:
        with contextlib.suppress(FileNotFoundError), open(source / name, "rb", 0) as reader:
            if name not in newest and sealed.get(name) != (inode := os.fstat(reader.fileno()).st_ino):
                _copy(reader, target / name, _end(reader))
                sealed[name] = inode
                with open((source / name).with_suffix(".idx"), "rb", 0) as index:
                    _copy(index, (target / name).with_suffix(".idx"), _end(index))


def _log_files(folder: Path) -> dict[str, int]:
    """Return the sorted names of journal files and segments, with their inodes."""
    paths = [*folder.glob("state/*.log"), *folder.glob("streams/*/*.log")]
    return {str(path.relative_to(folder)): path.stat().st_ino for path in sorted(paths)}


def _end(file: FileIO) -> int:
    """Return the offset after the last nonzero byte: files have space reserved for later writes."""
    offset = os.fstat(file.fileno()).st_size
    while offset > 0:
        begin = max(offset - _CHUNK, 0)
        chunk = os.pread(file.fileno(), offset - begin, begin)
        if chunk != bytes(len(chunk)):
            return begin + len(chunk.rstrip(b"\0"))
        offset = begin
    return 0


def _copy(reader: FileIO, target: Path, end: int) -> None:
    """Copy a file up to an offset, pad it with zeros to its length, and sync it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "wb") as writer:
        offset, length = 0, os.fstat(reader.fileno()).st_size
        while offset < end and (count := os.sendfile(writer.fileno(), reader.fileno(), offset, end - offset)):
            offset += count
        os.ftruncate(writer.fileno(), max(offset, length))
        os.fsync(writer.fileno())


def _sync(*folders: Path) -> None:
    for folder in folders:
        descriptor = os.open(folder, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
