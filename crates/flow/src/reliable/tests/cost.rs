//! Measures the cost of a byte. Run with `--release -- --ignored --nocapture cost` on an idle machine.

use super::*;

/// Number of bytes of one measurement.
const LENGTH: usize = 512 << 20;

#[test]
#[ignore = "a measurement, not a check"]
fn cost_of_a_stream() {
    for (name, manners) in [("direct", None), ("relay", Some(0)), ("relay, 1 % lost", Some(10))] {
        for congestion in [Congestion::Cubic, Congestion::Bbr].repeat(3) {
            let far =
                there(ReliableOptions { timeout: PEER_TIMEOUT, ..listener() }, |options, control, notify| {
                    let mut input = open_input(options, control, notify)?;
                    let mut room = vec![0; 256 * 1024];
                    let (mut blocks, mut total) = (0, 0);
                    loop {
                        match input.next(&mut room, control)?.len() {
                            0 => return Ok::<_, Error>((blocks, total)),
                            length => (blocks, total) = (blocks + 1, total + length),
                        }
                    }
                });
            let relay = manners
                .map(|lost| Relay::to(far.address, Manners { seed: 0x5eed, lost, doubled: 0, swapped: 0 }));
            let address = relay.as_ref().map_or(far.address, |relay| relay.address);
            let control = Control::new().unwrap();
            let options = ReliableOptions {
                timeout: PEER_TIMEOUT,
                congestion,
                ..connector(address, Some(far.fingerprint))
            };
            let mut output = open_output(&options, &control, &mut silent).unwrap();
            let (block, started, cpu) = (bytes(1 << 20), Instant::now(), cpu_s());
            for _ in 0..LENGTH / block.len() {
                output.put(&block, &control).unwrap();
            }
            output.finish(&control).unwrap();
            let (seconds, cpu, giga) = (started.elapsed().as_secs_f64(), cpu_s() - cpu, LENGTH as f64 / 1e9);
            let (blocks, total) = far.thread.join().unwrap().unwrap();
            println!(
                "{name}, {congestion:?}: {:.3} GB/s, {:.2} CPU s/GB, blocks of {} bytes, peak {} MiB",
                giga / seconds,
                cpu / giga,
                total / blocks,
                peak_bytes() >> 20
            );
        }
    }
}

/// Returns the processor time of this process, in seconds.
fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the greatest resident size of this process so far, in bytes.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
