#!/usr/bin/env python3
"""Lists the public API of the crates for users and compares it with the list that is kept in
spec/rust-api.

python tools/public_api.py          says what has changed; exits 1 if anything has
python tools/public_api.py --write  keeps what is there now

rustdoc says what is public as JSON, which a stable compiler does only if told to
(``RUSTC_BOOTSTRAP``), and cargo-public-api reads that. `make api` installs it below .make/cargo;
its version must fit the compiler's.
"""

from __future__ import annotations

import argparse
import difflib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "spec" / "rust-api"
READER = ROOT / ".make" / "cargo" / "bin" / "cargo-public-api"
CRATES = {
    "tidewire-engine": "tokio",
    "tidewire-node": "embedded,opentelemetry,schemars",
    "tidewire-config": "",
    "tidewire-link": "",
    "tidewire-proto": "",
}
"""What programs of Rust users name, with features that are off by default. The other crates are
parts of these.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="keep what is there now")
    options = parser.parse_args()
    changed = False
    for crate, features in CRATES.items():
        kept, now = KEPT / f"{crate}.txt", public_api(crate, features)
        before = kept.read_text() if kept.exists() else ""
        if now != before and options.write:
            kept.parent.mkdir(exist_ok=True)
            kept.write_text(now)
        changed = changed or (now != before and not options.write)
        name = str(kept.relative_to(ROOT))
        sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), now.splitlines(True), name, "now", n=0))
    if changed:
        print("the public API has changed: python tools/public_api.py --write keeps it; say so in CHANGELOG.md")
    return 1 if changed else 0


def public_api(crate: str, features: str) -> str:
    """Return the public items of a crate, a line each."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "public-api"
    document = ["cargo", "rustdoc", "--quiet", "--locked", "--lib", "--package", crate, "--features", features]
    as_json = ["--", "-Zunstable-options", "--output-format", "json", "--cap-lints", "allow"]
    settings = {**os.environ, "RUSTC_BOOTSTRAP": "1", "CARGO_TARGET_DIR": str(target)}
    subprocess.run([*document, *as_json], cwd=ROOT, env=settings, check=True)
    read = [READER, "-sss", "--rustdoc-json", target / "doc" / f"{crate.replace('-', '_')}.json"]
    return subprocess.run(read, cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
