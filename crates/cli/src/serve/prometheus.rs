//! Counters of a server, in the text format of Prometheus (version 0.0.4).
//!
//! Times are in seconds, sizes in bytes. Labels are devices, users and volumes, so that their number does not
//! grow with connections; only [`Status`] lists single clients. Counters of a user include the user's ended
//! clients, so that they never decrease.

use bywash_protocol::report::{self, BUCKETS, Counters, Status};
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// Content type of the text, for the HTTP header.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Formats a status as Prometheus metrics.
pub fn text(status: &Status) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_all(status, &mut out);
    out
}

/// Counters, and the labels of the device or user that they belong to.
struct Labelled<'a> {
    labels: Vec<(&'static str, &'a str)>,
    counts: &'a Counters,
}

fn write_all(status: &Status, out: &mut String) -> fmt::Result {
    head(out, "bywash_info", "gauge", "What this server is.")?;
    sample(out, "bywash_info", &[("version", &status.version)], 1)?;
    head(out, "bywash_uptime_seconds", "gauge", "Since the server began.")?;
    sample(out, "bywash_uptime_seconds", &[], status.uptime_s)?;
    head(out, "bywash_core_cpu_seconds_total", "counter", "Processor time of all cores' threads.")?;
    sample(out, "bywash_core_cpu_seconds_total", &[], Seconds(status.core_cpu_ns))?;
    head(out, "bywash_core_clients", "gauge", "Clients that a core serves.")?;
    for core in &status.cores {
        sample(out, "bywash_core_clients", &[("core", &core.core.to_string())], core.clients)?;
    }
    head(out, "bywash_asks_refused_total", "counter", "Messages over the socket that were refused.")?;
    sample(out, "bywash_asks_refused_total", &[], status.asks_refused)?;
    head(out, "bywash_clients_refused_total", "counter", "Clients that were turned away or thrown out.")?;
    sample(out, "bywash_clients_refused_total", &[], status.clients_refused)?;
    head(out, "bywash_clients", "gauge", "Clients that are connected.")?;
    sample(out, "bywash_clients", &[], status.clients.len())?;

    head(out, "bywash_device_bytes", "gauge", "Size of a device.")?;
    for device in &status.devices {
        sample(out, "bywash_device_bytes", &[("device", &device.name)], device.bytes)?;
    }
    head(out, "bywash_device_free_bytes", "gauge", "Bytes of a device that no volume has.")?;
    for device in &status.devices {
        sample(out, "bywash_device_free_bytes", &[("device", &device.name)], device.free)?;
    }
    type Figure = fn(&report::Device) -> u64;
    let thin: [(&str, &str, Figure); 3] = [
        ("bywash_device_thin_bytes", "Size of all thin volumes on a device.", |device| device.thin),
        ("bywash_device_thin_allocated_bytes", "Bytes that the thin volumes have.", |device| {
            device.thin_allocated
        }),
        ("bywash_device_thin_left_bytes", "Bytes that thin volumes can still have.", |device| {
            device.thin_left
        }),
    ];
    for (name, help, figure) in thin {
        head(out, name, "gauge", help)?;
        for device in &status.devices {
            sample(out, name, &[("device", &device.name)], figure(device))?;
        }
    }
    head(out, "bywash_device_stuck", "gauge", "Whether a device has stopped to answer.")?;
    for device in &status.devices {
        sample(out, "bywash_device_stuck", &[("device", &device.name)], u8::from(device.is_stuck))?;
    }
    let devices = status
        .devices
        .iter()
        .map(|device| Labelled { labels: vec![("device", &device.name)], counts: &device.counts });
    write_counts(out, "device", &devices.collect::<Vec<_>>())?;

    let users: Vec<String> =
        status.users.iter().map(|user| user.uid.map_or("others".to_owned(), |uid| uid.to_string())).collect();
    head(out, "bywash_user_clients", "gauge", "Clients of a user that are connected.")?;
    for (user, uid) in status.users.iter().zip(&users) {
        sample(out, "bywash_user_clients", &[("uid", uid)], user.clients)?;
    }
    let counted = status.users.iter().zip(&users);
    let counted = counted.map(|(user, uid)| Labelled { labels: vec![("uid", uid)], counts: &user.counts });
    write_counts(out, "user", &counted.collect::<Vec<_>>())?;

    let mut volumes: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for grant in status.clients.iter().flat_map(|client| &client.grants) {
        let grants = volumes.entry(grant.volume.as_deref().unwrap_or("(a descriptor)")).or_default();
        *grants = (grants.0 + 1, grants.1 + u64::from(grant.is_mapped));
    }
    head(out, "bywash_volume_grants", "gauge", "Grants of a volume that clients have.")?;
    for (volume, (all, _)) in &volumes {
        sample(out, "bywash_volume_grants", &[("volume", volume)], all)?;
    }
    head(out, "bywash_volume_mapped_grants", "gauge", "Those of them whose memory a client has mapped.")?;
    for (volume, (_, mapped)) in &volumes {
        sample(out, "bywash_volume_mapped_grants", &[("volume", volume)], mapped)?;
    }
    Ok(())
}

/// A counter family: end of its name, help text, and the function that reads the value.
type Kind = (&'static str, &'static str, fn(&Counters) -> u64);

fn write_counts(out: &mut String, of: &str, all: &[Labelled<'_>]) -> fmt::Result {
    let kinds: [Kind; 7] = [
        ("reads_total", "Requests that read.", |counts| counts.reads),
        ("writes_total", "Requests that changed something.", |counts| counts.writes),
        ("flushes_total", "Requests to make it durable.", |counts| counts.flushes),
        ("read_bytes_total", "Bytes that were read.", |counts| counts.bytes_read),
        ("written_bytes_total", "Bytes that were changed.", |counts| counts.bytes_written),
        ("refusals_total", "Requests that were refused.", |counts| counts.refusals),
        ("failures_total", "Requests that a device failed.", |counts| counts.failures),
    ];
    for (name, help, value) in kinds {
        let name = format!("bywash_{of}_{name}");
        head(out, &name, "counter", help)?;
        for Labelled { labels, counts } in all {
            sample(out, &name, labels, value(counts))?;
        }
    }
    let name = format!("bywash_{of}_request_seconds");
    head(out, &name, "histogram", "Time from when the server saw a request until it was done.")?;
    for Labelled { labels, counts } in all {
        write_histogram(out, &name, labels, counts)?;
    }
    Ok(())
}

fn write_histogram(out: &mut String, name: &str, labels: &[(&str, &str)], counts: &Counters) -> fmt::Result {
    let mut sum = 0;
    for (bucket, count) in counts.latency.iter().enumerate() {
        sum += count;
        let bound = match bucket + 1 {
            BUCKETS => "+Inf".to_owned(),
            bits => Seconds(1 << bits).to_string(),
        };
        let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
        sample(out, &format!("{name}_bucket"), &labels, sum)?;
    }
    sample(out, &format!("{name}_sum"), labels, Seconds(counts.latency_ns))?;
    sample(out, &format!("{name}_count"), labels, sum)
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) -> fmt::Result {
    writeln!(out, "# HELP {name} {help}")?;
    writeln!(out, "# TYPE {name} {kind}")
}

fn sample(out: &mut String, name: &str, labels: &[(&str, &str)], value: impl fmt::Display) -> fmt::Result {
    out.push_str(name);
    for (number, (label, text)) in labels.iter().enumerate() {
        write!(out, "{}{label}=\"", if number == 0 { '{' } else { ',' })?;
        for letter in text.chars() {
            match letter {
                '\\' => out.push_str("\\\\"),
                '"' => out.push_str("\\\""),
                '\n' => out.push_str("\\n"),
                letter => out.push(letter),
            }
        }
        out.push('"');
    }
    if !labels.is_empty() {
        out.push('}');
    }
    writeln!(out, " {value}")
}

/// A time in nanoseconds that is displayed in seconds.
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_protocol::Access;
    use bywash_protocol::report::{Client, Core, Device, Grant, User};

    #[test]
    fn everything_is_told_once_and_names_are_quoted() {
        let mut counts = Counters { reads: 3, bytes_read: 4096, ..Counters::default() };
        for nanoseconds in [1, 700, 1_000, 3_000_000_000_000] {
            counts.note_latency(nanoseconds);
        }
        let device = Device {
            name: "fast".into(),
            id: None,
            bytes: 1 << 20,
            free: 0,
            thin: 0,
            thin_allocated: 0,
            thin_left: 0,
            is_low: false,
            block: 512,
            how: String::new(),
            in_flight: 0,
            is_stuck: false,
            counts: counts.clone(),
        };
        let grant = |volume: &str| Grant {
            grant: 1,
            volume: Some(volume.into()),
            access: Access::Read,
            bytes: 1,
            is_mapped: volume == "log",
            counts: Counters::default(),
        };
        let client = Client {
            client: 7,
            name: "a \"b\"\\\n".into(),
            pid: 1,
            uid: 1000,
            share: 1,
            depth: 8,
            in_flight: 0,
            is_polled: false,
            core: 0,
            grants: ["log", "a \"b\"\\\n"].map(grant).to_vec(),
            counts: counts.clone(),
        };
        let status = Status {
            version: "1.2.3".into(),
            pid: 1,
            uptime_s: 5,
            core_cpu_ns: 1_500_000_000,
            cores: vec![Core { core: 1, clients: 2, ..Core::default() }],
            asks_refused: 2,
            clients_refused: 0,
            devices: vec![device],
            clients: vec![client.clone(), Client { client: 8, name: "c".into(), ..client }],
            users: vec![
                User { uid: Some(1000), clients: 2, counts, stuck: 0 },
                User { uid: None, ..User::default() },
            ],
            exports: Vec::new(),
        };
        let text = text(&status);
        // A client that connects often, under any name, adds no line.
        assert!(!text.contains("client=") && !text.contains("grant=") && !text.contains("name="), "{text}");
        for line in [
            "bywash_info{version=\"1.2.3\"} 1",
            "bywash_core_cpu_seconds_total 1.500000000",
            "bywash_core_clients{core=\"1\"} 2",
            "bywash_device_reads_total{device=\"fast\"} 3",
            "bywash_user_read_bytes_total{uid=\"1000\"} 4096",
            "bywash_user_read_bytes_total{uid=\"others\"} 0",
            "bywash_user_clients{uid=\"1000\"} 2",
            "bywash_volume_grants{volume=\"a \\\"b\\\"\\\\\\n\"} 2",
            "bywash_volume_mapped_grants{volume=\"log\"} 2",
            "bywash_device_request_seconds_bucket{device=\"fast\",le=\"0.000000512\"} 1",
            "bywash_device_request_seconds_bucket{device=\"fast\",le=\"0.000001024\"} 3",
            "bywash_device_request_seconds_bucket{device=\"fast\",le=\"+Inf\"} 4",
            "bywash_device_request_seconds_sum{device=\"fast\"} 3000.000001701",
            "bywash_device_request_seconds_count{device=\"fast\"} 4",
        ] {
            assert!(text.lines().any(|told| told == line), "{line} is not in\n{text}");
        }
        // Each family has exactly one head.
        let mut heads: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let all = heads.len();
        heads.sort_unstable();
        heads.dedup();
        assert_eq!(heads.len(), all);
    }
}
