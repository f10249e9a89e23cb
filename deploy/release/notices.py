"""Writes the licence notices of the crates in the program.

    notices.py METADATA > THIRD-PARTY-LICENSES.txt

Each text stands once, after the crates that come with it. A crate without a text of its own is named with its licence.
"""

import pathlib
import sys

import crates

NAMES = ("license", "licence", "copying", "notice", "copyright", "unlicense")


def texts(package):
    """The licence files next to the crate's manifest."""
    folder = pathlib.Path(package["manifest_path"]).parent
    named = [folder / package["license_file"]] if package["license_file"] else []
    found = {path for path in folder.iterdir() if path.is_file() and path.name.lower().startswith(NAMES)}
    for path in sorted(found | {path for path in named if path.is_file()}):
        yield path.read_text(errors="replace").strip()


def main():
    packages, _ = crates.shipped(sys.argv[1])
    users, bare = {}, []
    for package in packages[1:]:
        name = f"{package['name']} {package['version']} ({package['license'] or 'see its text'})"
        own = list(dict.fromkeys(texts(package)))
        if not own:
            bare.append(name)
        for text in own:
            users.setdefault(text, []).append(name)
    print("kstatd is under the Apache License 2.0, see LICENSE. These crates are in it, under licences of their own.")
    if bare:
        print("\nWithout a text of their own:\n")
        for name in bare:
            print(f"  {name}")
    for text, names in sorted(users.items(), key=lambda entry: entry[1]):
        print("\n" + "=" * 120 + "\n")
        for name in names:
            print(f"  {name}")
        print(f"\n{text}")


if __name__ == "__main__":
    main()
