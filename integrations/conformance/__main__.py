"""A client of docs/COMMANDS.md, written from that page alone, and what the page promises put to a running device.

Usage: python3 integrations/conformance SOCKET [--only TEXT] [--stop] [--list] [--json] [--verbose]
"""

import argparse
import json
import sys
import time
import traceback

import case
import cases_attach
import cases_data
import cases_endings
import cases_files
import cases_fused
import cases_names
import cases_programs
import cases_refusals
import cases_rings
import cases_txn

GROUPS = (cases_attach, cases_rings, cases_refusals, cases_files, cases_data, cases_names, cases_fused, cases_programs,
          cases_txn, cases_endings)


def options():
    parser = argparse.ArgumentParser(
        prog="python3 integrations/conformance", description="Puts what docs/COMMANDS.md promises to a running device.",
        epilog="Exit: 0 all hold, 1 some do not, 2 the device cannot be reached. Cases work in one directory of their "
               "own at the root and remove it. Python 3.9 or later, its standard library, Linux.")
    parser.add_argument("socket", nargs="?", help="the device's socket, such as IMAGE.sock")
    parser.add_argument("--only", metavar="TEXT", default="", help="cases whose group or title holds TEXT")
    parser.add_argument("--stop", action="store_true", help="end the device at last, and see that it ends well")
    parser.add_argument("--list", action="store_true", help="print the cases and do nothing")
    parser.add_argument("--json", action="store_true", help="one object with all results on stdout")
    parser.add_argument("--verbose", action="store_true", help="where in the case it failed, too")
    found = parser.parse_args()
    if not found.socket and not found.list:
        parser.error("a socket is needed")
    return found


def run(context, chosen, verbose, say, last=False):
    """Results of cases. `last`: after them there is nothing to tidy up."""
    results = []
    for group, title, function, hostdir in chosen:
        start, state, why = time.monotonic(), "ok", ""
        try:
            if context.hostdir and not hostdir:
                raise case.Skip("not promised of a directory of the host (docs/HOSTDIR.md)")
            if last:
                function(context)
            else:
                in_its_place(context, function)
        except case.Skip as e:
            state, why = "skipped", str(e)
        except Exception as e:  # whatever it is, the other cases are still to be run
            state, why = "FAILED", str(e) or type(e).__name__
            if not isinstance(e, case.Failed):
                why = f"{type(e).__name__}: {why}"
            if verbose:
                why += "\n" + traceback.format_exc()
        results.append({"group": group, "case": title, "state": state.lower(), "why": why,
                        "seconds": round(time.monotonic() - start, 4)})
        say(f"{state:8} {group}: {title}" + (f": {why}" if why else ""))
    return results


def in_its_place(context, function):
    """A case with a directory of its own."""
    context.begin()
    try:
        function(context)
    finally:
        context.end()


def main():
    wanted = options()
    chosen = [c for c in case.CASES if wanted.only in f"{c[0]}: {c[1]}"]
    last = case.LAST if wanted.stop else []
    if wanted.list:
        for group, title, *_ in chosen + last:
            print(f"{group}: {title}")
        return 0
    if not chosen + last:
        print(f"no case holds {wanted.only!r}", file=sys.stderr)
        return 1
    try:
        context = case.Context(wanted.socket)
    except (OSError, case.Failed, ValueError) as e:
        print(f"{wanted.socket}: {e}", file=sys.stderr)
        return 2
    start = time.monotonic()
    say = (lambda line: None) if wanted.json else print
    results = run(context, chosen, wanted.verbose, say)
    context.remove(context.top)
    medium = context.session.medium
    results += run(context, last, wanted.verbose, say, last=True)
    context.session.close()
    count = {state: sum(r["state"] == state for r in results) for state in ("ok", "failed", "skipped")}
    if wanted.json:
        print(json.dumps({**count, "medium": medium, "seconds": round(time.monotonic() - start, 2), "cases": results}))
    else:
        print(f"{count['ok']} ok, {count['failed']} failed, {count['skipped']} skipped, "
              f"{time.monotonic() - start:.1f} s")
    return 1 if count["failed"] else 0


sys.exit(main())
