# From llvm-cov's lines (`lcov`): the table of the rooms, and by file the lines that nothing runs. `root` ends with a slash.
BEGIN {
    # The rooms are the folders of the packages that are published.
    while (("git grep -L 'publish = false' -- '*Cargo.toml'" | getline file) > 0) {
        sub(/Cargo\.toml$/, "", file)
        published[file "src/"] = 1
    }
    while (("git ls-files -- '*.rs'" | getline file) > 0)
        if (room_of(file) != "") find_tests(file)
}

# The folder of the source of a published package, or nothing.
function room_of(file,    end) {
    end = file ~ /^src\// ? 4 : index(file, "/src/") + 4
    return end >= 4 && (substr(file, 1, end) in published) ? substr(file, 1, end) : ""
}

# Marks the items of a file that only tests compile. rustfmt ends an item at the depth at which it begins.
function find_tests(file,    line, number, depth, begun, folder) {
    begun = -1
    while ((getline line < file) > 0) {
        number++
        depth = match(line, /[^ ]/) - 1
        if (begun < 0 && line ~ /^ *#\[cfg\((test|all\((loom, )?test)[,)]/) begun = depth
        if (begun < 0) continue
        tests[file, number] = 1
        if (depth != begun || line ~ /^ *(#\[|\/\/)/ || line !~ /[;},]$/) continue
        begun = -1
        if (line !~ /(^| )mod [a-z_]+;$/) continue
        folder = file
        if (!sub(/(mod|lib|main)\.rs$/, "", folder)) sub(/\.rs$/, "/", folder)
        sub(/;$/, "", line)
        sub(/.* /, "", line)
        modules[folder line] = 1
    }
    close(file)
}

function is_test(file,    module) {
    for (module in modules) if (index(file, module ".rs") == 1 || index(file, module "/") == 1) return 1
    return 0
}

/^SF:/ {
    file = substr($0, 4)
    if (index(file, root) == 1) file = substr(file, length(root) + 1)
    room = room_of(file)
    if (room != "" && is_test(file)) room = ""
    first = 0
}

/^DA:/ && room != "" {
    split(substr($0, 4), fields, ",")
    if ((file, fields[1]) in tests) next
    lines[room]++
    if (fields[2] > 0) {
        first = 0
        next
    }
    missed[room]++
    # A range goes on until a line runs.
    if (first) { last[file, count[file]] = fields[1]; next }
    first = fields[1]
    from[file, ++count[file]] = first
    last[file, count[file]] = first
}

END {
    sorted = "sort"
    print "| room | lines | not run | commit |"
    print "|---|---|---|---|"
    for (room in lines) {
        name = room
        if (name != "src/") sub(/src\/$/, "", name)
        printf "| `%s` | %d | %d | %s |\n", name, lines[room], missed[room], commit | sorted
    }
    close(sorted)
    print ""
    for (file in count) {
        text = file ":"
        for (number = 1; number <= count[file]; number++) {
            text = text " " from[file, number]
            if (last[file, number] != from[file, number]) text = text "-" last[file, number]
        }
        print text | sorted
    }
    close(sorted)
}
