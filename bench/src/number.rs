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
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if value < 1024.0 {
        return format!("{value:.0} B");
    }
    let mut scaled = value / 1024.0;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(scaled < 100.0);
    format!("{scaled:.decimals$} {}", UNITS[unit])
}

/// A value in its unit, short.
pub fn quantity(value: f64, unit: &str) -> String {
    match unit {
        "B" => bytes(value),
        "B/s" => format!("{}/s", bytes(value)),
        "ns" | "ns/op" if value.abs() >= 10_000.0 => {
            format!("{} {}", short(value / 1000.0), unit.replace("ns", "us"))
        }
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
    let decimals = match value {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_people_read_them() {
        assert_eq!(short(1_234_567.0), "1.23 M");
        assert_eq!(short(45_600.0), "45.6 k");
        assert_eq!(short(789.4), "789");
        assert_eq!(short(0.0), "0");
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!(bytes(11.25 * 1_048_576.0), "11.2 MiB");
        assert_eq!(quantity(2048.0, "B/s"), "2.0 KiB/s");
        assert_eq!(quantity(1_000_000.0, "op/s"), "1.00 M op/s");
        assert_eq!(
            (grouped(142_700), grouped(7), grouped(1_000_000)),
            ("142,700".into(), "7".into(), "1,000,000".into())
        );
        assert_eq!((ratio(1.234), ratio(12.34), ratio(123.4)), ("1.23".into(), "12.3".into(), "123".into()));
    }
}
