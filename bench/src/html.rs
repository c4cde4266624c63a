//! The report as one HTML file with plots and tables of each bench. It refers to nothing outside itself.

use crate::figure;
use crate::row::{Report, Row};
use crate::table::{self, Table, escape};
use bywash_plot::{Ratio, Ratios};

const STYLE: &str = "
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; }
h1 { margin-bottom: 0; } .about { opacity: .75; margin-top: .3em; }
svg { width: 100%; height: auto; }
details { margin: .5em 0 2.5em; } summary { cursor: pointer; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; }
th, td { padding: .25em .7em; text-align: left; border-bottom: 1px solid #8884; white-space: nowrap; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
td.met { color: #078; } td.missed { color: #d53; font-weight: bold; }
";

pub fn render(report: &Report) -> String {
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
         <title>bywash bench</title><style>{STYLE}</style></head><body>\n<h1>bywash bench</h1>\n\
         <p class=\"about\">bywash {} on {}; load {:.2} when it began.</p>\n\
         <p>Each dot is the median of the ratios of interleaved rounds, its bar the quartiles; the tick is the \
         goal, whose number is green where the middle half of the ratios reached it and red where that stayed below. \
         A ratio above 1 means more throughput, less time, or fewer bytes on the device, with bywash.</p>\n",
        escape(&report.version),
        escape(&report.machine.sentence()),
        report.machine.load_at_start
    );
    for bench in report.benches() {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.bench == bench).collect();
        let (points, dots): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.point.is_some());
        html.push_str(&format!("<h2>{}</h2>\n{}\n", escape(bench), ratios(bench, &dots).svg()));
        html.extend(figure::figures(&points).iter().map(|figure| format!("{}\n", figure.svg())));
        let open = if rows.iter().any(|row| row.ratio.is_none()) { " open=\"open\"" } else { "" };
        html.push_str(&format!("<details{open}><summary>{} rows</summary>\n", rows.len()));
        html.extend(table::of_bench(report, bench).iter().map(Table::html));
        html.push_str("</details>\n");
    }
    html + "</body></html>\n"
}

fn ratios(bench: &str, rows: &[&Row]) -> Ratios {
    let ratio = |row: &&Row| {
        let median = row.ratio?;
        let quartiles = [row.ratio_low.unwrap_or(median), median, row.ratio_high.unwrap_or(median)];
        // The dots of one line differ in the place, or in the peer where no file system is needed.
        let (series, unusual) = match row.place.is_empty() {
            true => (&row.peer, table::unusual(&Row { peer: "kernel".into(), ..(*row).clone() })),
            false => (&row.place, table::unusual(row)),
        };
        let label = format!("{}{unusual}", row.what());
        Some(Ratio { label, series: series.clone(), quartiles, goal: row.goal })
    };
    Ratios {
        title: format!("{bench}: ratio to the peer"),
        x_title: "right of 1 x is better with bywash (logarithmic)".into(),
        ratios: rows.iter().filter_map(ratio).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row;
    use quick_xml::{Reader, events::Event};

    #[test]
    fn the_page_is_well_formed_has_every_plot_and_refers_to_nothing_outside() {
        let mut report = row::sample();
        let place = "xfs".to_owned();
        report.rows.push(Row { case: "<b>, xfs".into(), place, ratio: Some(0.5), ..report.rows[0].clone() });
        let plot = ratios("run/micro", &report.rows.iter().collect::<Vec<_>>());
        let labels: Vec<&str> = plot.ratios.iter().map(|ratio| ratio.label.as_str()).collect();
        assert_eq!(labels, ["pread 4 KiB random", "<b>"]);
        assert_eq!(plot.ratios[0].quartiles, [1.875, 2.0, 2.125]);
        assert_eq!((plot.ratios[1].series.as_str(), plot.ratios[1].goal), ("xfs", Some(1.8)));
        report.rows.extend(figure::sample());
        let html = render(&report);
        let mut reader = Reader::from_str(html.trim_start_matches("<!DOCTYPE html>"));
        loop {
            match reader.read_event().expect("well-formed XML") {
                Event::Text(text) => drop(text.unescape().expect("known entities")),
                Event::Eof => break,
                _ => {}
            }
        }
        // A plot of the ratios and of each figure; a head and the lines of two tables of rows and two of curves.
        assert_eq!((html.matches("<svg").count(), html.matches("<tr>").count()), (3, 4 + 2 * 4));
        for outside in ["src=", "href=", "@import", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
        for part in
            ["Test CPU", "&lt;mkfs.xfs&gt;", "(ext4), 128 MiB moved: throughput in GB/s", "<b>2.00</b> ("]
        {
            assert!(html.contains(part), "{part}");
        }
    }
}
