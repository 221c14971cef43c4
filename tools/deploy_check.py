#!/usr/bin/env python3
"""Deployment check: the units, the chart, the image, the configuration, the boards and the alerts
of deploy/.

Usage: python tools/deploy_check.py [--helm PATH] [--tidewire PATH]

Units pass systemd-analyze; rendered manifests pass the schemas of Kubernetes; the hub and the
worker of deploy/ run with the configuration that is in it. A tool that is missing is named, and its
part is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml
from monitoring_check import check_monitoring

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
KUBERNETES = "1.30"
EXPOSURE = 20
"""Most exposure of a unit that systemd-analyze may find, in tenths."""
SECRET = "tokenSecret=shop"
CHARTS = {
    "on a volume": [SECRET],
    "on NATS": [SECRET, "hub.nats=nats://nats:4222", "serviceMonitor.enabled=true"],
    "without HTTP": [SECRET, "hub.http=false", "networkPolicy.enabled=false"],
    "scaled": [SECRET, "worker.autoscaling.enabled=true", "worker.storeSecret=postgres"],
    "hub alone": [SECRET, "worker.enabled=false", "hub.volume.storageClass=fast"],
}
MAKE_BUCKET = """
import os, tidewire as tw
with tw.Node(os.environ["TIDEWIRE_URL"]) as node:
    node.sync.kv("config").put("limit", 5)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks the files of deploy/.")
    parser.add_argument("--helm", default=shutil.which("helm"), help="the program helm")
    parser.add_argument("--tidewire", default=shutil.which("tidewire"), help="the program tidewire")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        check_units(Path(folder))
        check_image()
        check_compose()
        check_chart(options.helm, Path(folder))
        check_programs(options.tidewire, Path(folder))
    if options.tidewire is None:
        print("monitoring: left out, there is no tidewire")
    else:
        check_monitoring(options.tidewire)
    return 0


def run(*command: str, **options: Any) -> str:
    ran = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options)
    if ran.returncode:
        sys.exit(f"deploy: {' '.join(command)}: exit code {ran.returncode}\n{ran.stdout}")
    return ran.stdout


def check_units(folder: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        print("units: left out, there is no systemd-analyze")
        return
    for unit in sorted((DEPLOY / "systemd").glob("*.service")):
        # The check wants programs that exist.
        text = re.sub(r"^ExecStart=/opt/tidewire/bin/\w+", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE)
        (folder / unit.name).write_text(text)
        complaints = run("systemd-analyze", "verify", "--man=no", str(folder / unit.name))
        assert not complaints, complaints
        report = run(
            "systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE}", str(folder / unit.name)
        )
        print(f"units: {unit.name}: {report.strip().splitlines()[-1].split(': ')[-1].split(' ')[0]} of 10 exposed")


def check_image() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    stage = text.split("\nFROM ")[-1]
    for line in (r"^USER \d{4,}", r"^STOPSIGNAL SIGTERM", r"^HEALTHCHECK .*health", r'^CMD \["tidewire"'):
        assert re.search(line, stage, re.MULTILINE), f"Containerfile: no line {line} in the last stage"
    assert "USER" in stage and not re.search(r"^(?:CMD|ENTRYPOINT) [^\[]", text, re.MULTILINE), (
        "write commands as lists"
    )
    print("image: its lines are checked; it is not built here")


def check_compose() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    secret = re.search(r'^token = "(.*)"', (DEPLOY / "hub.toml").read_text(), re.MULTILINE)
    for name, service in services.items():
        assert service["read_only"] and service["cap_drop"] == ["ALL"], f"compose: {name} is not in a sandbox"
        assert secret and service["environment"]["TIDEWIRE_TOKEN"] == secret[1], f"compose: {name} has another token"
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (DEPLOY / source).is_file(), f"compose: {name} has no file {source}"
    print(f"compose: {', '.join(services)}")


def check_chart(helm: str | None, folder: Path) -> None:
    if helm is None:
        print("chart: left out, there is no helm")
        return
    environment = {**os.environ, "HOME": str(folder)}
    chart = str(DEPLOY / "helm/tidewire")
    for name, values in CHARTS.items():
        sets = ["--kube-version", KUBERNETES, *(word for value in values for word in ("--set", value))]
        run(helm, "lint", "--strict", "--quiet", chart, *sets, env=environment)
        kinds = []
        for manifest in yaml.safe_load_all(run(helm, "template", "shop", chart, *sets, env=environment)):
            if manifest["kind"] != "ServiceMonitor":  # its schema belongs to an operator
                kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
            kinds.append(manifest["kind"])
            check_pod(manifest)
        print(f"chart, {name}: {', '.join(kinds)}")
    refused = subprocess.run(
        [helm, "template", "shop", chart, *sets[:2]], env=environment, capture_output=True, check=False
    )
    assert refused.returncode and b"tokenSecret" in refused.stderr, "chart: a hub without a token is not refused"


def check_pod(manifest: dict[str, Any]) -> None:
    spec = manifest.get("spec", {})
    if "template" not in spec:
        return
    pod = spec["template"]
    assert spec["selector"]["matchLabels"] == pod["metadata"]["labels"], f"{manifest['kind']} selects other pods"
    assert pod["spec"]["securityContext"]["runAsNonRoot"], f"{manifest['kind']} runs as root"
    for container in pod["spec"]["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"], f"{container['name']} may write its root"
        assert container["resources"]["limits"]["memory"], f"{container['name']} has no limit of memory"


def check_programs(tidewire: str | None, folder: Path) -> None:
    """Run the hub and the worker with the configuration of deploy/, and call the worker."""
    page = (ROOT / "docs/guides/deployment.md").read_text(encoding="utf-8")
    worker = (DEPLOY / "worker.py").read_text(encoding="utf-8")
    assert f"```python worker.py\n{worker}```" in page, "deploy/worker.py is not the worker of the guide"
    if tidewire is None:
        print("programs: left out, there is no tidewire")
        return
    data, copy = folder / "data", folder / "copy"
    config = (DEPLOY / "hub.toml").read_text().replace("/data", str(data))
    (folder / "hub.toml").write_text(re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", config))
    environment = {**os.environ, "TIDEWIRE_TOKEN": "change-this-secret"}
    python = str(Path(tidewire).with_name("python"))
    hub = [tidewire, "up", "--config", str(folder / "hub.toml"), "--json", "--log-level=warning"]
    with started(hub, environment) as lines:
        environment["TIDEWIRE_URL"] = next(url for url in json.loads(next(lines))["urls"] if url.startswith("tide"))
        with started([python, str(DEPLOY / "worker.py")], environment):
            answer = run(tidewire, "call", "--wait", "20", "pricing.quote", "AB", env=environment)
            assert answer.strip() == "5.0", answer
        run(tidewire, "health", environment["TIDEWIRE_URL"], env=environment)
        run(python, "-c", MAKE_BUCKET, env=environment)
    print("programs: the hub is healthy, and the worker answers")
    shutil.copytree(data, copy)
    run(tidewire, "log", "check", str(copy))
    assert run(tidewire, "kv", "get", "config", "limit", "--url", str(copy)).strip() == "5"
    print("backup: a copy of the folder of a hub that has ended is whole")


class started:
    """A program that is ended by SIGTERM, with exit code 0."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Iterator[str]:
        assert self.process.stdout is not None
        return iter(self.process.stdout)

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        code = self.process.wait(30)
        assert code == 0, f"{self.process.args}: exit code {code} after SIGTERM"


if __name__ == "__main__":
    sys.exit(main())
