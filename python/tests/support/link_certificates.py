"""Certificates for hubs of stories and attacks."""

from __future__ import annotations

import subprocess
from pathlib import Path


def certificates(place: Path) -> Path:
    """Make a CA and a certificate of 127.0.0.1 in a folder with openssl, and return the folder."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    own = ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1", "-addext"]
    for made in (
        [*key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca"],
        [*key, "-keyout", "hub.key", "-out", "hub.pem", "-subj", "/CN=hub", *own, "basicConstraints=CA:FALSE"],
    ):
        subprocess.run(["openssl", "req", "-x509", *made], cwd=place, check=True, capture_output=True, timeout=60)
    return place
