# Sourced by test-install.sh and test-deb.sh: takes the three lines of each engine from docs/ENGINES.md and runs them.
# shellcheck shell=bash
page=docs/ENGINES.md

# The engines of the page: its sections with commands to copy.
page_engines() { awk '/^## /{name = $2} /^```sh$/{print name}' "$page"; }

page_block() { # engine, kind of block: the first such block in its section
    awk -v section="## $1" -v open="\`\`\`$2" '
        /^## / {inside = $0 == section}
        block && /^```$/ {exit}
        block {print}
        inside && $0 == open {block = 1}' "$page"
}
# Three, no more and no fewer: the package, the image, the use.
page_lines() { # engine: into the array `lines`
    mapfile -t lines < <(page_block "$1" sh)
    ((${#lines[@]} == 3)) || { echo "$page has ${#lines[@]} lines of $1"; return 1; }
    [[ ${lines[0]} == "sudo apt-get install ./weldfs_*.deb "* ]] || { echo "$page, $1, line 1: ${lines[0]}"; return 1; }
    [[ ${lines[1]} == "weldfs mkfs disk.img "* ]] || { echo "$page, $1, line 2: ${lines[1]}"; return 1; }
    [[ -n ${lines[2]} ]] || { echo "$page, $1: line 3 is empty"; return 1; }
}

# What line 3 leaves in the root of the image, and what it says.
declare -A leaves=([SQLite]=app.db [RocksDB]=db [LevelDB]=db [fio]=f)
declare -A says=([SQLite]="" [RocksDB]="(9999 of 9999 found)" [LevelDB]="OK value" [fio]="io=64.0MiB")

# Lines 2 and 3 of an engine, by a command that runs a script in an empty folder of its own, with what is installed.
# What is on the image afterwards shows that they ran; and without an image line 3 must complain, or it uses none.
page_run() { # engine, the command
    local engine=$1 lines files said program
    shift
    [[ -n ${leaves[$engine]:-} ]] || { echo "what $engine leaves is not known here"; return 1; }
    page_lines "$engine" || return 1
    program=$(page_block "$engine" cpp)
    [[ -z $program ]] || program="cat >app.cc <<'END'"$'\n'"$program"$'\nEND'
    said=$("$@" "$program"$'\n'"${lines[1]}"$'\n'"${lines[2]}"$'\necho "left: $(weldfs ls disk.img:/)"\nweldfs fsck -n disk.img' 2>&1) ||
        { printf '%s\n' "$said" "the lines of $engine fail"; return 1; }
    files=$(sed -n 's/^left: //p' <<<"$said")
    [[ $files == "${leaves[$engine]}" ]] || { printf '%s\n' "$said" "$engine leaves \"$files\""; return 1; }
    [[ $said == *"${says[$engine]}"* ]] || { printf '%s\n' "$said" "$engine does not say \"${says[$engine]}\""; return 1; }
    # SQLite's shell says so and ends with 0: after an `.open` that failed it has a database in memory.
    if said=$("$@" "$program"$'\n'"${lines[2]}" 2>&1) && [[ $said != *"unable to open database"* ]]; then
        printf '%s\n' "$said" "line 3 of $engine works without an image"
        return 1
    fi
    echo "   $engine: ${lines[2]}"
}

# A page that has lost a line, or an engine that has no lines, is a failure.
page_checked() { # engine...: those that must be there
    local engine lines whole=$page cut
    [[ $(page_engines | xargs) == "$*" ]] || { echo "$page has lines for $(page_engines | xargs), not for $*"; return 1; }
    cut=$(mktemp)
    for engine; do
        page=$whole && page_lines "$engine" || return 1
        grep -vxF -e "${lines[2]}" "$whole" >"$cut"
        page=$cut
        ! page_lines "$engine" >/dev/null || { echo "a page without the third line of $engine would do"; return 1; }
    done
    page=$whole
    rm "$cut"
}
