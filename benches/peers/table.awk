# The table and the JSON of ci/peers, from its record. POSIX awk.
#
# Fields are separated by tabs:
#   run     NAME  VALUE                                     parameters of the run
#   version IMPLEMENTATION VERSION
#   failed  IMPLEMENTATION GROUP REASON
#   result  ROUND IMPLEMENTATION GROUP CASE MIN P50 P90 COUNT
# -v json=1 prints JSON instead of text; -v stat=min|p50|p90 says which figure of a round is compared.
#
# A ratio is formed within each round. The table shows its median over the rounds, and the extremes.

BEGIN {
    FS = "\t"
    if (stat == "") stat = "p50"
    column = stat == "min" ? 6 : stat == "p90" ? 8 : 7
    OURS = "tagmatch"; FLOOR = "floor"
    group_count = split("latency rate bandwidth depth memory collectives", groups, " ")
    title["latency"] = "half round trip, ns"
    title["rate"] = "message rate, 8 B, window 64, million messages/s"
    title["bandwidth"] = "bandwidth, GB/s"
    title["depth"] = "half round trip of 8 B past receives that never match, ns"
    title["memory"] = "resident memory, bytes each, of 100 000"
    title["collectives"] = "collective operations of 2 ranks, ns a call; broadcast: roots take turns; dup: with free"
    higher["rate"] = higher["bandwidth"] = 1
}

$1 == "run" { parameter[++parameters] = $2; setting[$2] = $3 }
$1 == "version" { version[$2] = $3; remember($2) }
$1 == "failed" { remember($2); failure[++failures] = $2; failed_group[failures] = $3; reason[failures] = $4 }
$1 == "result" {
    round = $2; name = $3; group = $4; test = $5
    remember(name)
    if (!((group, test) in known)) { known[group, test] = 1; tests[group, ++test_count[group]] = test }
    if (round > rounds) rounds = round
    value[round, name, test] = figure(group, test, $column)
    raw[++raws] = $0
}

END {
    if (json) print_json(); else print_text()
}

function remember(name) {
    if (!(name in seen)) { seen[name] = 1; if (name != OURS && name != FLOOR) peers[++peer_count] = name }
}

# Converts nanoseconds per operation to the unit that is shown.
function figure(group, test, ns,   part) {
    split(test, part, ":")
    if (group == "rate") return 1000 / ns
    if (group == "bandwidth") return part[2] / ns
    return ns + 0
}

# Sorts list[1..count].
function sort(list, count,   i, j, x) {
    for (i = 2; i <= count; i++) {
        x = list[i]
        for (j = i - 1; j >= 1 && list[j] > x; j--) list[j + 1] = list[j]
        list[j + 1] = x
    }
}

function median(list, count) {
    return count % 2 ? list[(count + 1) / 2] : (list[count / 2] + list[count / 2 + 1]) / 2
}

# The median over the rounds of an implementation's figures; sets `count`.
function over_rounds(name, test,   r, list) {
    count = 0
    for (r = 1; r <= rounds; r++) if ((r, name, test) in value) list[++count] = value[r, name, test]
    sort(list, count)
    return count ? median(list, count) : 0
}

# Ours / the other's in each round; sets `count`, `middle`, `low`, `high`. The other side may be another
# test of ours.
function ratio(test, name, other_test,   r, list, other) {
    count = 0
    for (r = 1; r <= rounds; r++) {
        if (!((r, OURS, test) in value) || !((r, name, other_test) in value)) continue
        other = value[r, name, other_test]
        if (other > 0) list[++count] = value[r, OURS, test] / other
    }
    sort(list, count)
    if (count) { middle = median(list, count); low = list[1]; high = list[count] }
    return count
}

# The peer that is best over all rounds. The best peer of each round would be chosen by luck.
function best_peer(test, more,   p, v, found, name) {
    for (p = 1; p <= peer_count; p++) {
        v = over_rounds(peers[p], test)
        if (count && (name == "" || (more ? v > found : v < found))) { found = v; name = peers[p] }
    }
    return name
}

function size_name(bytes) {
    if (bytes >= 1048576) return bytes / 1048576 " MiB"
    if (bytes >= 1024) return bytes / 1024 " KiB"
    return bytes " B"
}

function label(group, test,   part) {
    split(test, part, ":")
    if (part[1] == "window") return size_name(part[2]) ", window " part[3]
    if (part[1] == "posted") return "posted receive"
    if (part[1] == "unexpected") return "unexpected, 8 B"
    if (part[1] == "collective") return part[2] (part[3] > 0 ? ", " size_name(part[3]) : "")
    if (group == "latency") return size_name(part[2])
    return (part[3] == "any" ? "any source" : "exact") " past " (part[5] > 0 ? part[5] " " part[4] : "none")
}

function number(x) {
    if (x < 0.095) return sprintf("%.2g", x)
    return x >= 1000 ? sprintf("%.0f", x) : x >= 100 ? sprintf("%.1f", x) : sprintf("%.2f", x)
}

function print_text(   i, g, t, p, test, group, line) {
    for (i = 1; i <= parameters; i++) printf "# %-12s%s\n", parameter[i], setting[parameter[i]]
    for (p = 0; p <= peer_count; p++) {
        i = p ? peers[p] : OURS
        if (i in version) printf "# %-12s%s\n", i, version[i]
    }
    for (i = 1; i <= failures; i++)
        printf "# NOT MEASURED: %s, %s: %s\n", failure[i], failed_group[i], reason[i]
    for (g = 1; g <= group_count; g++) {
        group = groups[g]
        if (!test_count[group]) continue
        printf "\n== %s\n", title[group]
        printf "   ours / other [lowest..highest of the rounds]; %s 1: ours is better\n", higher[group] ? "above" : "below"
        line = sprintf("%-28s%10s  %-26s", "", OURS, FLOOR)
        for (p = 1; p <= peer_count; p++) line = line sprintf("  %-26s", peers[p])
        print trimmed(line)
        for (t = 1; t <= test_count[group]; t++) {
            test = tests[group, t]
            line = sprintf("%-28s%10s", label(group, test), shown(OURS, test))
            line = line sprintf("  %-26s", shown(FLOOR, test))
            for (p = 1; p <= peer_count; p++) line = line sprintf("  %-26s", shown(peers[p], test))
            print trimmed(line)
            line = sprintf("%-28s%10s", "", "")
            line = line sprintf("  %-26s", shown_ratio(test, FLOOR))
            for (p = 1; p <= peer_count; p++) line = line sprintf("  %-26s", shown_ratio(test, peers[p]))
            if (line ~ /x/) print trimmed(line)
        }
    }
    print_aims()
}

function trimmed(line) { sub(/ +$/, "", line); return line }

function shown(name, test,   v) {
    v = over_rounds(name, test)
    return count ? number(v) : "-"
}

function shown_ratio(test, name) {
    return ratio(test, name, test) ? sprintf("x%s [%s..%s]", number(middle), number(low), number(high)) : ""
}

# The aims, and how far off they are.
function print_aims(   g, t, test, base, part, sum) {
    printf "\n== aims\n%-52s%-12s%s\n", "", "reach", "here"
    for (t = 1; t <= test_count["latency"]; t++) {
        test = tests["latency", t]
        split(test, part, ":")
        if (part[2] == 8) aim("8 B half round trip / floor", test, FLOOR, test, 1.3, 0)
        if (part[2] <= 4096) aim(size_name(part[2]) " half round trip / best peer", test, "best", test, 1, 0)
    }
    for (t = 1; t <= test_count["depth"]; t++) {
        test = tests["depth", t]
        split(test, part, ":")
        if (part[5] == 0) base[part[3]] = test
        if (part[5] == 16384) aim(label("depth", test) " / past none", test, OURS, base[part[3]], 1.1, 0)
    }
    for (t = 1; t <= test_count["rate"]; t++)
        aim("message rate / best peer", tests["rate", t], "best", tests["rate", t], 2, 1)
    for (t = 1; t <= test_count["bandwidth"]; t++) {
        test = tests["bandwidth", t]
        split(test, part, ":")
        if (part[2] < 1048576) continue
        aim(size_name(part[2]) " bandwidth / bare process_vm_readv", test, FLOOR, test, 0.95, 1)
        aim(size_name(part[2]) " bandwidth / best peer", test, "best", test, 1, 1)
    }
    for (t = 1; t <= test_count["memory"]; t++) {
        test = tests["memory", t]
        bytes_aim(label("memory", test), test, test ~ /^posted/ ? 128 : 136)
    }
    for (t = 1; t <= test_count["collectives"]; t++) {
        test = tests["collectives", t]
        split(test, part, ":")
        if (part[2] == "allreduce") sum = test
        if (part[2] == "agree") aim("agree / our allreduce", test, OURS, sum, 3, 0)
        else if (part[2] != "alltoall") aim(label("collectives", test) " / best peer", test, "best", test, 1, 0)
    }
}

function aim(what, test, other, other_test, reach, more,   met, is_best) {
    is_best = other == "best"
    if (is_best) other = best_peer(test, more)
    if (!ratio(test, other, other_test)) { printf "%-52s%-12s-\n", what, (more ? ">= " : "<= ") reach; return }
    met = more ? middle >= reach : middle <= reach
    printf "%-52s%-12s%-24s%s%s\n", what, (more ? ">= " : "<= ") reach, shown_middle(), met ? "reached" : "missed", is_best ? "  (" other ")" : ""
}

function shown_middle() { return sprintf("x%s [%s..%s]", number(middle), number(low), number(high)) }

function bytes_aim(what, test, reach,   v) {
    v = over_rounds(OURS, test)
    if (!count) { printf "%-52s%-12s-\n", what, "<= " reach " B"; return }
    printf "%-52s%-12s%-24s%s\n", what, "<= " reach " B", number(v) " B", v <= reach ? "reached" : "missed"
}

function quoted(text) {
    gsub(/\\/, "\\\\", text)
    gsub(/"/, "\\\"", text)
    gsub(/[[:cntrl:]]/, " ", text)
    return "\"" text "\""
}

function print_json(   i, f, g, t, p, test, comma, name) {
    printf "{\"run\":{"
    for (i = 1; i <= parameters; i++) printf "%s%s:%s", (i > 1 ? "," : ""), quoted(parameter[i]), quoted(setting[parameter[i]])
    printf "},\n\"versions\":{"
    comma = ""
    for (name in version) { printf "%s%s:%s", comma, quoted(name), quoted(version[name]); comma = "," }
    printf "},\n\"not_measured\":["
    for (i = 1; i <= failures; i++)
        printf "%s{\"implementation\":%s,\"group\":%s,\"reason\":%s}", (i > 1 ? "," : ""), quoted(failure[i]), quoted(failed_group[i]), quoted(reason[i])
    printf "],\n\"unit\":\"nanoseconds per operation; memory: bytes\",\n\"results\":["
    for (i = 1; i <= raws; i++) {
        split(raw[i], f, "\t")
        printf "%s\n{\"round\":%d,\"implementation\":%s,\"group\":%s,\"case\":%s,\"min\":%s,\"p50\":%s,\"p90\":%s,\"batches\":%d}",
            (i > 1 ? "," : ""), f[2], quoted(f[3]), quoted(f[4]), quoted(f[5]), f[6], f[7], f[8], f[9]
    }
    printf "],\n\"ratios_of\":%s,\n\"ratios\":[", quoted(stat)
    comma = ""
    for (g = 1; g <= group_count; g++) for (t = 1; t <= test_count[groups[g]]; t++) for (p = 0; p <= peer_count; p++) {
        test = tests[groups[g], t]
        name = p ? peers[p] : FLOOR
        if (!ratio(test, name, test)) continue
        printf "%s\n{\"group\":%s,\"case\":%s,\"to\":%s,\"better\":%s,\"median\":%.4f,\"lowest\":%.4f,\"highest\":%.4f,\"rounds\":%d}",
            comma, quoted(groups[g]), quoted(test), quoted(name), higher[groups[g]] ? "\"above 1\"" : "\"below 1\"", middle, low, high, count
        comma = ","
    }
    print "]}"
}
