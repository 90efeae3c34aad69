//! Outputs: CSV, OSU's format, JSON stream, histogram, charts, baseline, `compare`.

mod common;

use std::fs::read_to_string;

use serde_json::Value;
use tagmatch_testkit::scratch::Scratch;

use common::{alone, command, json, refused, tagperf, text};

/// Standard output of a command that succeeds and prints nothing else.
fn stdout_of(args: &str) -> String {
    let output = tagperf(args);
    assert_eq!(text(&output.stderr), "", "{args}");
    assert_eq!(output.status.code(), Some(0), "{args}");
    text(&output.stdout).to_owned()
}

#[test]
fn csv_has_one_heading_and_a_row_a_result() {
    let _alone = alone();
    for (args, latency) in [("lat --sizes 0,8,64K", true), ("bw --sizes 8,64K,256K", false)] {
        let stdout = stdout_of(&format!("{args} --iters 20 --warmup 1 --csv"));
        let lines: Vec<_> =
            stdout.lines().map(|line| line.split(',').collect::<Vec<_>>()).collect();
        assert_eq!(
            stdout.lines().next().unwrap(),
            "test,device,size_bytes,posted_depth,unexpected_depth,wildcard_percent,iters,samples,\
             min_ns,p50_ns,p90_ns,p99_ns,p999_ns,max_ns,mean_ns,bandwidth_bytes_per_s,\
             messages_per_s,validated,threads,queue,order,planned_per_s,interrupted,window,hw_tags,\
             ranks,rank_mean_min_ns,rank_mean_avg_ns,rank_mean_max_ns,\
             completions"
        );
        assert_eq!(lines.len(), 4);
        for row in &lines[1..] {
            assert_eq!(row.len(), lines[0].len(), "{row:?}");
            assert_eq!((row[0], row[1], row[6]), (&args[..args.find(' ').unwrap()], "shm", "20"));
            assert_eq!(row[8].parse::<f64>().is_ok(), latency, "{row:?}");
            assert!(row[16].parse::<u64>().unwrap() > 0, "{row:?}");
        }
        assert_eq!(lines[2][2].parse::<u64>().unwrap(), if latency { 8 } else { 65536 });
    }
}

#[test]
fn osu_is_read_as_existing_scripts_read_it() {
    let _alone = alone();
    for (args, columns) in [("lat --sizes 0,8,64K", 2), ("bw --sizes 8,64K", 2), ("rate", 3)] {
        let output_text = stdout_of(&format!("{args} --iters 20 --osu"));
        let lines: Vec<_> = output_text.lines().collect();
        assert!(lines[0].starts_with("# OSU MPI ") && lines[0].contains(" Test"), "{output_text}");
        assert!(lines[1].starts_with("# Size    "), "{output_text}");
        assert!(lines.len() > 2);
        for row in &lines[2..] {
            // Columns of 10 and 18, flush left and flush right, two decimals.
            assert_eq!(row.len(), 10 + 18 * (columns - 1), "{row}");
            assert!(row[..10].trim_end().parse::<u64>().is_ok(), "{row}");
            for column in row.split_whitespace().skip(1) {
                assert!(column.parse::<f64>().unwrap() > 0.0, "{row}");
                assert_eq!(column.split('.').nth(1).map(str::len), Some(2), "{row}");
            }
        }
    }
}

#[test]
fn osu_rows_of_several_blocks_are_told_apart() {
    let _alone = alone();
    let comments = |args: &str| -> Vec<String> {
        let stdout = stdout_of(&format!("{args} --iters 64 --warmup 10 --osu"));
        let lines = stdout.lines().skip(2).filter(|line| line.starts_with('#'));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(comments("lat --sizes 8,64 --threads 1,2"), ["# threads 1", "# threads 2"]);
    assert_eq!(
        comments("depth --depths 0,64 --wildcard 0,50"),
        [
            "# messages of 8 B, posted queue",
            "# messages of 8 B, posted queue, any source 50 %",
            "# messages of 8 B, unexpected queue"
        ]
    );
    assert_eq!(
        comments("depth --drain --depths 32,64 --order reverse,random --queue posted"),
        [
            "# messages of 8 B, posted queue, order reverse",
            "# messages of 8 B, posted queue, order random"
        ]
    );
    assert_eq!(comments("bw --sizes 8,64"), Vec::<String>::new());
    assert_eq!(comments("bw --sizes 8 --posted-depth 5"), ["# 5 posted"]);
}

#[test]
fn every_row_says_its_window_and_only_its_like_is_compared() {
    let _alone = alone();
    let scratch = Scratch::new("every_row_says_its_window_and_only_its_like_is_compared");
    let few = "--iters 2 --warmup 0";
    let window =
        |args: &str| json(&format!("{args} {few} --json -"))["results"][0]["window"].clone();
    assert_eq!(window("bw --sizes 8"), 64);
    assert_eq!(window("bw --sizes 64K --window 3"), 3);
    assert_eq!(window("lat --rate 100k"), 64);
    assert_eq!(window("lat --sizes 8"), Value::Null);
    let csv = stdout_of(&format!("bw --sizes 8,1M {few} --csv"));
    let last: Vec<_> = csv.lines().map(|line| line.split(',').nth(23).unwrap()).collect();
    assert_eq!(last, ["window", "64", "2"]);
    let run = |name: &str, args: &str| {
        let file = scratch.path(name);
        stdout_of(&format!("bw --sizes 8 --iters 64 {args} --json {file}"));
        file
    };
    let old = run("window-old.json", "");
    let same = run("window-same.json", "--window 64");
    for (name, args) in
        [("window-other.json", "--window 16"), ("queue.json", "--completions queue")]
    {
        let other = run(name, args);
        assert!(refused(&format!("compare {old} {other}")).contains("in common"));
    }
    let output = tagperf(&format!("compare {old} {same} --fail-if-slower 10000"));
    assert!(text(&output.stdout).contains("1 compared"), "{}", text(&output.stderr));
}

#[test]
fn every_shape_has_every_form() {
    let _alone = alone();
    let scratch = Scratch::new("every_shape_has_every_form");
    for (args, rows) in [
        ("bibw --sizes 8,64K", 2),
        ("lat --sizes 8 --threads 1,2", 2),
        ("lat --sizes 8 --rate 20k", 1),
        ("bw --sizes 8 --single-buffer", 1),
        ("bw --sizes 8 --completions queue", 1),
        ("lat --sizes 8 --self", 1),
        ("depth --queue posted --depths 0,64 --wildcard 0,50", 3),
        ("depth --drain --depths 64,128 --queue unexpected --order reverse", 2),
    ] {
        let json = scratch.path(&format!("shape-{}.json", args.len()));
        let svg = scratch.path(&format!("shape-{}.svg", args.len()));
        let args = format!("{args} --iters 64 --warmup 10");
        let csv = stdout_of(&format!("{args} --csv --json {json} --plot {svg}"));
        let columns: Vec<_> = csv.lines().map(|line| line.split(',').count()).collect();
        assert_eq!((columns.len(), columns[0]), (rows + 1, 30), "{csv}");
        assert!(columns.iter().all(|&count| count == columns[0]), "{csv}");
        assert!(
            read_to_string(&svg).unwrap().starts_with("<svg")
                && !read_to_string(&svg).unwrap().contains("NaN"),
            "{args}"
        );
        let osu = stdout_of(&format!("{args} --osu"));
        assert_eq!(osu.lines().filter(|line| !line.starts_with('#')).count(), rows, "{osu}");
        // Each row has its counterpart in another run.
        let compared = stdout_of(&format!("{args} --baseline {json}"));
        assert!(compared.contains(&format!("{rows} compared")), "{compared}");
        assert!(!compared.contains("alone"), "{compared}");
    }
    let drained =
        stdout_of("depth --drain --depths 64 --queue posted --order reverse --iters 64 --csv");
    assert!(drained.contains("drain,shm,8,64,0,") && drained.contains(",posted,reverse,,false,"));
    assert!(
        stdout_of("depth --depths 64 --queue posted --wildcard 0 --iters 50 --osu")
            .contains("\n64  ")
    );
}

#[test]
fn what_was_measured_until_an_interrupt_is_told_in_every_form() {
    let _alone = alone();
    let scratch = Scratch::new("what_was_measured_until_an_interrupt_is_told_in_every_form");
    let old = scratch.path("interrupted.json");
    stdout_of(&format!("lat --sizes 8 --iters 300 --json {old}"));
    for form in ["--csv", "--osu", "--json-stream"] {
        let svg = scratch.path(&format!("interrupted{form}.svg"));
        let more = format!("--baseline {old} --plot {svg}");
        let child = command(&format!("lat --sizes 8 --duration 60s --warmup 0 {form} {more}"))
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(700));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
        let rows = text(&output.stdout);
        match form {
            "--csv" => assert!(rows.trim_end().ends_with(",true,,off,,,,,"), "{rows}"),
            "--osu" => assert_eq!(rows.lines().count(), 3, "{rows}"),
            _ => assert!(rows.trim_end().ends_with("\"interrupted\":true}"), "{rows}"),
        }
        assert!(read_to_string(&svg).unwrap().contains("Latency"));
    }
}

#[test]
fn a_stream_has_a_line_for_each_result_and_for_each_second() {
    let _alone = alone();
    let lines = stdout_of("lat --sizes 8,64 --duration 1200ms --warmup 1 --json-stream");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut lines = lines;
    // On a busy machine there may be more lines of progress.
    lines.dedup_by_key(|line| line["record"].clone());
    let records: Vec<_> = lines.iter().map(|line| line["record"].as_str().unwrap()).collect();
    assert_eq!(records, ["start", "progress", "result", "progress", "result", "end"]);
    for line in &lines {
        assert_eq!((&line["schema"], &line["tool"]), (&1.into(), &"tagperf".into()));
        assert_eq!(line["test"], "lat");
    }
    assert_eq!(lines[0]["config"]["duration_ms"], 1200);
    assert_eq!((&lines[3]["step"], &lines[3]["steps"]), (&2.into(), &2.into()));
    assert!(lines[1]["elapsed_ms"].as_u64().unwrap() >= 1000);
    assert_eq!((&lines[2]["size"], &lines[4]["size"]), (&8.into(), &64.into()));
    assert!(lines[4]["latency_ns"]["p50"].as_f64().unwrap() > 0.0);
    assert_eq!(lines[5]["results"], 2);
}

#[test]
fn a_stream_is_out_as_each_result_is_done() {
    let _alone = alone();
    use std::io::{BufRead, BufReader};
    let mut child = command("lat --sizes 8,16 --iters 1000000000 --json-stream")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The first size never ends here, but its start and its progress can be read.
    assert!(lines.next().unwrap().unwrap().contains("\"record\":\"start\""));
    assert!(lines.next().unwrap().unwrap().contains("\"record\":\"progress\""));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_histogram_holds_every_sample() {
    let _alone = alone();
    let document = json("lat --sizes 8 --iters 3000 --histogram --json -");
    let bins = document["results"][0]["histogram"]["bins"].as_array().unwrap();
    let count: u64 = bins.iter().map(|bin| bin[2].as_u64().unwrap()).sum();
    assert_eq!(count, 3000);
    let edges = bins.iter().flat_map(|bin| [bin[0].as_f64().unwrap(), bin[1].as_f64().unwrap()]);
    assert!(edges.collect::<Vec<_>>().is_sorted());
    let latency = &document["results"][0]["latency_ns"];
    assert!(bins[0][0].as_f64() <= latency["min"].as_f64());

    let stdout = stdout_of("lat --sizes 8 --iters 3000 --histogram");
    let bars: Vec<_> = stdout.lines().filter(|line| line.contains('█')).collect();
    assert!(!bars.is_empty() && bars.iter().all(|bar| bar.starts_with('#') && bar.contains("us")));
    // Without the option there is no histogram.
    assert!(json("lat --sizes 8 --iters 30 --json -")["results"][0].get("histogram").is_none());
}

#[test]
fn json_has_blocks_to_judge_noise_by() {
    let _alone = alone();
    for (args, name) in [("lat --sizes 8", "latency_ns"), ("rate", "messages_per_s")] {
        let document = json(&format!("{args} --iters 20000 --json -"));
        let blocks = document["results"][0]["blocks"][name].as_array().unwrap().clone();
        assert!((5..=64).contains(&blocks.len()), "{args}: {}", blocks.len());
        assert!(blocks.iter().all(|block| block.as_f64().unwrap() > 0.0));
    }
}

#[test]
fn charts_are_drawn() {
    let _alone = alone();
    let scratch = Scratch::new("charts_are_drawn");
    for (args, words) in [
        (
            "lat --sizes 0,8,512,4K --iters 500",
            &["Latency by message size", "p50", ">4K<", "half the round trip"][..],
        ),
        ("bw --sizes 1,64,1K,4K --iters 200", &["Bandwidth by message size", "MB/s", ">1K<"]),
        ("lat --sizes 8 --posted-depth 5 --iters 2000", &["Latency, 8 B, 5 posted", "99 %"]),
        ("rate --iters 2000", &["Message rate, 8 B", "messages/s", "time of the measurement"]),
    ] {
        let file = scratch.path(&format!("chart-{}.svg", args.len()));
        stdout_of(&format!("{args} --warmup 10 --plot {file}"));
        let svg = read_to_string(&file).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{args}");
        for word in words.iter().chain(&["$ tagperf"]) {
            assert!(svg.contains(word), "{args}: {word}");
        }
        assert!(!svg.contains("NaN"), "{args}");
    }
}

#[test]
fn a_baseline_of_its_own_kind() {
    let _alone = alone();
    let scratch = Scratch::new("a_baseline_of_its_own_kind");
    let old = scratch.path("baseline.json");
    stdout_of(&format!("lat --sizes 8 --iters 3000 --json {old}"));
    // Ten times as slow as it will ever be: no run is slower than that.
    let document: Value = serde_json::from_str(&read_to_string(&old).unwrap()).unwrap();
    let scaled = |factor: f64| {
        let mut document = document.clone();
        let row = &mut document["results"][0];
        for value in row["latency_ns"].as_object_mut().unwrap().values_mut() {
            *value = (value.as_f64().unwrap() * factor).into();
        }
        for value in row["blocks"]["latency_ns"].as_array_mut().unwrap() {
            *value = (value.as_f64().unwrap() * factor).into();
        }
        document.to_string()
    };
    let slow = scratch.file("slow.json", scaled(1e6));
    let fast = scratch.file("fast.json", scaled(1e-6));
    let args = "lat --sizes 8 --iters 3000 --fail-if-slower 5 --baseline";
    let stdout = stdout_of(&format!("{args} {slow}"));
    assert!(stdout.contains("faster"), "{stdout}");

    let output = tagperf(&format!("{args} {fast}"));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("SLOWER"), "{}", text(&output.stdout));
    assert_eq!(text(&output.stderr).lines().count(), 1);
    assert!(text(&output.stderr).contains("1 of 1 results are slower"));

    // Without a limit the comparison is only printed.
    let shown = tagperf(&format!("lat --sizes 8 --iters 300 --baseline {fast}"));
    assert_eq!(shown.status.code(), Some(0));
    assert!(text(&shown.stdout).contains("SLOWER"));
    let csv = tagperf(&format!("{args} {fast} --csv"));
    assert_eq!((csv.status.code(), text(&csv.stdout).lines().count()), (Some(1), 2));
    // Where standard output has rows or JSON for a program, the comparison is on standard error.
    for form in ["--csv", "--osu", "--json-stream", "--json -"] {
        let lat = format!("lat --sizes 8 --iters 300 --baseline {fast} {form}");
        let shown = tagperf(&lat);
        assert_eq!(shown.status.code(), Some(0), "{form}");
        assert!(text(&shown.stderr).contains("SLOWER"), "{form}: {}", text(&shown.stderr));
        assert!(!text(&shown.stdout).contains("SLOWER"), "{form}");
    }

    // `compare`, which measures nothing, comes to the same.
    let compare = |old: &str, new: &str, more: &str| {
        let output = tagperf(&format!("compare {old} {new} {more}"));
        (output.status.code(), text(&output.stdout).to_owned() + text(&output.stderr))
    };
    assert_eq!(compare(&old, &old, "--fail-if-slower 0").0, Some(0));
    assert_eq!(compare(&slow, &old, "").0, Some(0));
    let (status, stdout) = compare(&fast, &old, "");
    assert_eq!(status, Some(1), "{stdout}");
    let (status, json) = compare(&fast, &old, "--json -");
    assert_eq!(status, Some(1));
    let line: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!((&line["test"], &line["slower"]), (&"compare".into(), &1.into()));
    assert_eq!(line["results"][0]["verdict"], "slower");
    let interval = &line["results"][0]["interval_percent"];
    assert!(interval[0].as_f64() <= interval[1].as_f64());
}

#[test]
fn a_stream_is_a_baseline_too_and_a_tour_as_well() {
    let _alone = alone();
    let scratch = Scratch::new("a_stream_is_a_baseline_too_and_a_tour_as_well");
    let stream = stdout_of("rate --iters 3000 --json-stream");
    let stream = scratch.file("stream.json", &stream);
    let args = format!("rate --iters 3000 --baseline {stream}");
    assert!(stdout_of(&args).contains("1 compared"));
    let bw = stdout_of("bw --sizes 8 --iters 300 --json -");
    let tour = scratch.file("tour.json", format!("[{},{}]", bw.trim(), bw.trim()));
    let output_text = stdout_of(&format!("compare {tour} {tour} --fail-if-slower 0"));
    assert!(output_text.contains("1 compared") && output_text.contains("same"), "{output_text}");
}

#[test]
fn files_that_are_no_results() {
    let _alone = alone();
    let scratch = Scratch::new("files_that_are_no_results");
    let nonsense = scratch.file("nonsense.json", "nonsense\n");
    let empty = scratch.file("empty.json", "");
    let other = scratch.file("other.json", "{\"schema\":1,\"tool\":\"fio\"}");
    for file in [&nonsense, &empty, &other] {
        for args in [
            format!("lat --sizes 8 --iters 9 --baseline {file} --fail-if-slower 5"),
            format!("compare {file} {file}"),
        ] {
            let message = refused(&args);
            assert!(message.contains(file) && message.contains("; use "), "{message}");
        }
    }
    let lat = scratch.path("lat.json");
    stdout_of(&format!("lat --sizes 8 --iters 9 --json {lat}"));
    let rate = scratch.path("rate.json");
    stdout_of(&format!("rate --iters 9 --json {rate}"));
    assert!(refused(&format!("compare {lat} {rate}")).contains("in common"));
    assert!(refused("compare /nonexistent/a /nonexistent/b").contains("/nonexistent/a"));
    assert!(refused("compare - -").contains("standard input"));
    assert!(refused("compare /").contains("NEW"));
    assert!(refused(&format!("compare / {lat}")).contains("directory"));
}

#[test]
fn options_that_do_not_go_together() {
    let _alone = alone();
    assert!(refused("lat --csv --osu").contains("--osu"));
    assert!(refused("lat --json-stream --csv").contains("--json-stream"));
    assert!(refused("lat --csv --json -").contains("both --json and --csv go to -"));
    assert!(refused("lat --csv --histogram").contains("--json FILE with them"));
    assert!(refused("lat --osu --histogram").contains("no place for --histogram"));
    for test in ["bw", "bibw", "rate", "depth --drain"] {
        assert!(refused(&format!("{test} --histogram")).contains("no single messages"), "{test}");
    }
    assert!(!refused("lat --plot /proc/x.svg").contains("- for"));
    assert!(refused("lat --fail-if-slower 5").contains("--baseline"));
    assert!(refused("lat --baseline /nonexistent/x").contains("/nonexistent/x"));
    assert!(refused("lat --plot x.png").contains("ends in .svg"));
    assert!(refused("lat --plot /nonexistent/x.svg").contains("cannot create"));
    assert!(refused("lat --baseline x --fail-if-slower -5").contains("'-5'"));
    assert!(refused("lat --baseline x --fail-if-slower five").contains("expected"));
}
