"""Writes the exploitability of known vulnerabilities in the shipped crates (VEX), as CycloneDX 1.5.

    vex.py DENY_TOML BOM TIME > kstatd.vex.cdx.json

`cargo deny check` fails for every advisory that deny.toml does not list, so its list is the list of all that are known and do not
affect kstatd. The reason of an entry has the form `CRATE: JUSTIFICATION: text`, such as

    ignore = [{ id = "RUSTSEC-2024-0001", reason = "h2: code_not_reachable: kstatd never calls it" }]

Vulnerabilities refer to the components of BOM. Crates that are not shipped are left out.
"""

import datetime
import json
import pathlib
import sys
import tomllib

JUSTIFICATIONS = [
    "code_not_present", "code_not_reachable", "requires_configuration", "requires_dependency", "requires_environment",
    "protected_by_compiler", "protected_at_runtime", "protected_at_perimeter", "protected_by_mitigating_control",
]


def vulnerability(entry, bom):
    """One advisory, or None if the program does not contain its crate."""
    advisory, reason = (entry.get("id"), entry.get("reason", "")) if isinstance(entry, dict) else (entry, "")
    crate, justification, text = ([part.strip() for part in reason.split(":", 2)] + ["", ""])[:3]
    if justification not in JUSTIFICATIONS or not text:
        sys.exit(f"deny.toml: {advisory}: the reason must be `CRATE: JUSTIFICATION: text`, with one of {', '.join(JUSTIFICATIONS)}: {reason!r}")
    component = bom["serialNumber"].replace("urn:uuid:", "urn:cdx:") + f"/{bom['version']}#"
    affected = [{"ref": component + one["bom-ref"]} for one in bom["components"] if one["name"] == crate]
    if not affected:
        return None
    return {
        "id": advisory,
        "source": {"name": "RustSec", "url": f"https://rustsec.org/advisories/{advisory}.html"},
        "analysis": {"state": "not_affected", "justification": justification, "detail": text},
        "affects": affected,
    }


def main():
    deny, bom, time = sys.argv[1:]
    bom = json.loads(pathlib.Path(bom).read_text())
    entries = tomllib.loads(pathlib.Path(deny).read_text())["advisories"].get("ignore", [])
    found = [vulnerability(entry, bom) for entry in entries]
    vex = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": datetime.datetime.fromtimestamp(int(time), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": bom["metadata"]["component"],
        },
        "vulnerabilities": [one for one in found if one],
    }
    json.dump(vex, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
