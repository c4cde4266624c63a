//! Numbers as people read them.

/// Three significant digits and a prefix: `1.23 M`, `45.6 k`, `789`.
pub fn short(value: f64) -> String {
    let (scaled, prefix) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, " G"),
        size if size >= 1e6 => (value / 1e6, " M"),
        size if size >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let decimals = match scaled.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    format!("{scaled:.decimals$}{prefix}")
}

/// Bytes with a binary prefix: `11.2 MiB`.
pub fn bytes(value: f64) -> String {
    let (mut scaled, mut unit) = (value, "B");
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if scaled >= 1024.0 {
            (scaled, unit) = (scaled / 1024.0, larger);
        }
    }
    let decimals = usize::from(unit != "B" && scaled < 100.0);
    format!("{scaled:.decimals$} {unit}")
}

/// A value in its unit, short.
pub fn quantity(value: f64, unit: &str) -> String {
    match unit {
        "B" => bytes(value),
        "B/s" => format!("{}/s", bytes(value)),
        "ns" | "ns/op" if value.abs() >= 10_000.0 => quantity(value / 1000.0, &unit.replace("ns", "us")),
        // Short enough for a column.
        "transactions/s" => format!("{} tx/s", short(value)),
        _ => format!("{} {unit}", short(value)),
    }
}

/// Digits in groups of three: `142,700`.
pub fn grouped(value: u64) -> String {
    indicatif::HumanCount(value).to_string()
}

/// Two decimals below ten, one above, none from a hundred on.
pub fn ratio(value: f64) -> String {
    let decimals = usize::from(value < 100.0) + usize::from(value < 10.0);
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_people_read_them() {
        assert_eq!([1_234_567.0, 45_600.0, 789.4, 0.0].map(short), ["1.23 M", "45.6 k", "789", "0"]);
        assert_eq!([0.0, 2048.0, 11.25 * 1_048_576.0].map(bytes), ["0 B", "2.0 KiB", "11.2 MiB"]);
        assert_eq!([quantity(2048.0, "B/s"), quantity(12_000.0, "ns")], ["2.0 KiB/s", "12.0 us"]);
        assert_eq!([1.234, 12.34, 123.4].map(ratio), ["1.23", "12.3", "123"]);
    }
}
