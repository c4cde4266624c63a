//! The report as one HTML file with a plot and a table for each bench. It refers to nothing outside itself.

use crate::curve;
use crate::markdown;
use crate::number;
use crate::plot::{self, escape};
use crate::row::{Report, Row, Verdict};
use std::fmt::Write;

const STYLE: &str = "
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; }
h1 { margin-bottom: 0; } .about { opacity: .75; margin-top: .3em; }
svg { width: 100%; height: auto; }
details { margin: .5em 0 2.5em; } summary { cursor: pointer; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; }
th, td { padding: .25em .7em; text-align: left; border-bottom: 1px solid #8884; white-space: nowrap; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
td.met { color: #078; } td.missed { color: #d53; font-weight: bold; } td.note { white-space: normal; min-width: 20em; }
";

/// The whole report.
pub fn render(report: &Report) -> String {
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
         <title>bywash bench</title><style>{STYLE}</style></head><body>\n<h1>bywash bench</h1>\n\
         <p class=\"about\">bywash {} on {}; load {:.2} when it began.</p>\n\
         <p>Each dot is the median of the ratios of interleaved pairs, its bar the quartiles; the tick is the \
         goal, whose number is green where the middle half of the ratios reached it and red where that stayed below. A ratio above 1 means more throughput, less time, or fewer bytes on the device, with bywash.</p>\n",
        escape(&report.version),
        escape(&report.machine.sentence()),
        report.machine.load_at_start
    );
    for bench in report.benches() {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.bench == bench).collect();
        let (curves, dots): (Vec<&Row>, Vec<&Row>) =
            rows.iter().copied().partition(|row| row.point.is_some());
        // Writing to a string cannot fail.
        let _ = write!(html, "<h2>{}</h2>\n{}\n", escape(bench), plot::render(bench, &dots));
        for figure in curve::render(&curves) {
            let _ = writeln!(html, "{figure}");
        }
        table(&mut html, &rows);
    }
    html.push_str("</body></html>\n");
    html
}

fn table(html: &mut String, rows: &[&Row]) {
    const HEADS: [&str; 11] = [
        "case",
        "against",
        "it",
        "bywash",
        "ratio",
        "quartiles",
        "goal",
        "at user level",
        "device read, written",
        "faults",
        "note",
    ];
    let open = if rows.iter().any(|row| row.ratio.is_none()) { " open=\"open\"" } else { "" };
    let _ =
        write!(html, "<details{open}><summary>{} rows</summary><div class=\"wide\"><table><tr>", rows.len());
    for head in HEADS {
        let _ = write!(html, "<th>{head}</th>");
    }
    html.push_str("</tr>\n");
    for row in rows {
        line(html, row);
    }
    html.push_str("</table></div></details>\n");
}

fn line(html: &mut String, row: &Row) {
    let quantity =
        |value: Option<f64>| value.map_or_else(|| "-".into(), |value| number::quantity(value, &row.unit));
    let ratio = |value: Option<f64>| value.map_or_else(|| "-".into(), number::ratio);
    let metric = if row.metric == "throughput" { String::new() } else { format!(" ({})", row.metric) };
    let goal_class = match row.verdict() {
        Some(Verdict::Reached) => "number met",
        Some(Verdict::Missed) => "number missed",
        Some(Verdict::Undecided) | None => "number",
    };
    let cells = [
        ("", format!("{}{metric}", row.case)),
        ("", row.peer.clone()),
        ("number", quantity(row.peer_value)),
        ("number", quantity(row.ours)),
        ("number", ratio(row.ratio)),
        ("number", format!("{} to {}", ratio(row.ratio_low), ratio(row.ratio_high))),
        (goal_class, ratio(row.goal)),
        ("", markdown::user_level(row)),
        ("", markdown::device(row)),
        ("", markdown::faults(row)),
        ("note", row.note.clone()),
    ];
    html.push_str("<tr>");
    for (class, text) in cells {
        let _ = write!(html, "<td class=\"{class}\">{}</td>", escape(&text));
    }
    html.push_str("</tr>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row;

    #[test]
    fn curves_have_figures_of_their_own() {
        let mut report = row::sample();
        report.rows.extend(curve::sample());
        let html = render(&report);
        let names = plot::elements(html.trim_start_matches("<!DOCTYPE html>"));
        assert_eq!(names.iter().filter(|name| *name == "svg").count(), 3);
        assert!(html.contains("same file system (ext4), 128 MiB moved: throughput in GB/s"));
    }

    #[test]
    fn the_page_is_well_formed_and_refers_to_nothing_outside() {
        let html = render(&row::sample());
        let names = plot::elements(html.trim_start_matches("<!DOCTYPE html>"));
        assert_eq!(names.iter().filter(|name| *name == "svg").count(), 1);
        assert_eq!(names.iter().filter(|name| *name == "tr").count(), 3);
        for outside in ["src=", "href=", "@import", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert!(html.contains("Test CPU") && html.contains("&lt;mkfs.xfs&gt;"));
    }
}
