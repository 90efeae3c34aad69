# The tables (part=table) or the chart (part=chart) of docs/offload.md, from the rows of ci/offload.
{
    if (!($1 in seen)) { seen[$1] = 1; names[++count] = $1 }
    key = $1 SUBSEP $2 SUBSEP $3
    share[key] = 100 * $4 / ($4 + $5)
    bytes[key] = $6 / 1e6
    operations[key] = $4 ? $7 / $4 : 0
    missed[key] = $8
    matched[key] = $4
}

function shares(name, list) {
    return sprintf(" %.1f | %.1f |", share[name, list, "tagmatch"], share[name, list, "ucx"])
}

function per_message(name, who) {
    return matched[name, 127, who] >= 10 ? sprintf("%.2f", operations[name, 127, who]) : "-"
}

function table(    i, name) {
    print "\nMessages that the NIC has matched, in percent of those with a tag, by the length of its list:\n"
    print "| workload | tagmatch, 15 | UCX, 15 | tagmatch, 63 | UCX, 63 | tagmatch, 127 | UCX, 127 |"
    print "|---|---|---|---|---|---|---|"
    for (i = 1; i <= count; i++) {
        name = names[i]
        print "| " name " |" shares(name, 15) shares(name, 63) shares(name, 127)
    }
    print "\nWith 127 entries: bytes that the NIC has placed, in MB; operations on its list for each message that it has matched; and"
    print "messages that missed an entry because it had missed its phase:\n"
    print "| workload | MB, tagmatch | MB, UCX | operations, tagmatch | operations, UCX | missed, tagmatch | missed, UCX |"
    print "|---|---|---|---|---|---|---|"
    for (i = 1; i <= count; i++) {
        name = names[i]
        printf "| %s | %.1f | %.1f | %s | %s | %d | %d |\n", name, bytes[name, 127, "tagmatch"], bytes[name, 127, "ucx"],
            per_message(name, "tagmatch"), per_message(name, "ucx"), missed[name, 127, "tagmatch"], missed[name, 127, "ucx"]
    }
    print ""
}

function text(x, y, anchor, line) {
    gsub(/`/, "", line)
    printf "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, line
}

function bar(y, colour, percent) {
    printf "<rect x=\"340\" y=\"%d\" width=\"%.1f\" height=\"9\" fill=\"%s\"/>\n", y, 4 * percent, colour
    text(346 + 4 * percent, y + 9, "start", sprintf("%.1f", percent))
}

function chart(    i, y) {
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\" height=\"%d\" font-family=\"sans-serif\" font-size=\"11\">\n", 50 + 30 * count
    print "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    text(24, 22, "start", "Messages matched by the NIC, in percent; a list of 127 entries")
    print "<rect x=\"560\" y=\"13\" width=\"9\" height=\"9\" fill=\"#1b6ca8\"/><rect x=\"650\" y=\"13\" width=\"9\" height=\"9\" fill=\"#d98b2b\"/>"
    text(574, 22, "start", "tagmatch")
    text(664, 22, "start", "UCX 1.13")
    for (i = 1; i <= count; i++) {
        y = 12 + 30 * i
        text(330, y + 12, "end", names[i])
        bar(y, "#1b6ca8", share[names[i], 127, "tagmatch"])
        bar(y + 10, "#d98b2b", share[names[i], 127, "ucx"])
    }
    print "</svg>"
}

END { if (part == "table") table(); else chart() }
