//! Clock of MPEG transport streams: the program clock references (PCR) of ISO/IEC 13818-1, section 2.4.2.2.
//!
//! The packets between two references are spread by the rate that the two references before tell, and never go back in
//! time. The clock follows the first program that has references.

/// Size of a packet, in bytes.
pub(crate) const TS_PACKET_BYTES: usize = 188;
/// First byte of each packet.
const SYNC: u8 = 0x47;
/// Rate of the clock of the references, in hertz.
const CLOCK_HZ: u64 = 27_000_000;
/// Number of values of a reference: 33 bits of 90 kHz, and 300 steps in each.
const REFERENCES: u64 = (1 << 33) * 300;
/// Greatest time between two references of one clock; the standard allows 0.1 s.
const GAP_MAX: u64 = CLOCK_HZ;

/// The clock of one program of a transport stream.
#[derive(Debug, Default)]
pub(super) struct TsClock {
    /// Program (PID) whose references are followed.
    program: Option<u16>,
    /// The last reference.
    reference: Option<u64>,
    /// Time in the stream of the last reference, in ticks of the clock.
    ticks: u64,
    /// Packets since the last reference.
    packets: u64,
    /// Ticks of a packet, by the last two references; 0 until there are two.
    ticks_per_packet: f64,
    /// Greatest time that was told so far, in ticks.
    last: u64,
}

impl TsClock {
    /// Returns the time of the next packet, in nanoseconds; `None` if it is no packet of a transport stream.
    pub(super) fn time_ns(&mut self, packet: &[u8]) -> Option<u64> {
        if packet.first() != Some(&SYNC) {
            return None;
        }
        if let Some((program, reference)) = reference(packet)
            && *self.program.get_or_insert(program) == program
        {
            self.note(reference);
        }
        let ticks = self.ticks + (self.packets as f64 * self.ticks_per_packet) as u64;
        self.packets += 1;
        self.last = self.last.max(ticks);
        Some((u128::from(self.last) * 1_000_000_000 / u128::from(CLOCK_HZ)) as u64)
    }

    fn note(&mut self, reference: u64) {
        if let Some(before) = self.reference.replace(reference) {
            let ticks = (reference + REFERENCES - before) % REFERENCES;
            if (1..=GAP_MAX).contains(&ticks) {
                self.ticks_per_packet = ticks as f64 / self.packets.max(1) as f64;
                self.ticks += ticks;
            } else {
                // Another clock begins: the stream goes on at the rate that it had.
                self.ticks += (self.packets as f64 * self.ticks_per_packet) as u64;
            }
        }
        self.packets = 0;
    }
}

/// Returns the program and the reference of a packet that has one.
fn reference(packet: &[u8]) -> Option<(u16, u64)> {
    let program = u16::from_be_bytes([*packet.get(1)?, *packet.get(2)?]) & 0x1fff;
    let has_adaptation = packet.get(3)? & 0x20 != 0;
    let (length, flags) = (*packet.get(4)?, *packet.get(5)?);
    if !has_adaptation || length < 7 || flags & 0x10 == 0 {
        return None;
    }
    let field: [u8; 6] = packet.get(6..12)?.try_into().ok()?;
    let base = u64::from(u32::from_be_bytes([field[0], field[1], field[2], field[3]])) << 1
        | u64::from(field[4] >> 7);
    let extension = u64::from(u16::from_be_bytes([field[4] & 1, field[5]]));
    Some((program, (base * 300 + extension) % REFERENCES))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Makes a packet of a program, with a reference if there is one.
    pub(crate) fn packet(program: u16, reference: Option<u64>) -> [u8; TS_PACKET_BYTES] {
        let mut packet = [0xff; TS_PACKET_BYTES];
        packet[..4].copy_from_slice(&[SYNC, (program >> 8) as u8, program as u8, 0x10]);
        if let Some(reference) = reference {
            let (base, extension) = (reference / 300, reference % 300);
            packet[3..6].copy_from_slice(&[0x30, 7, 0x10]);
            packet[6..10].copy_from_slice(&((base >> 1) as u32).to_be_bytes());
            packet[10] = ((base & 1) as u8) << 7 | 0x7e | (extension >> 8) as u8;
            packet[11] = extension as u8;
        }
        packet
    }

    #[test]
    fn packets_are_spread_between_references() {
        let mut clock = TsClock::default();
        // 100 packets in 10 ms: 100 us for each. The first interval has no rate yet.
        let begin = REFERENCES - CLOCK_HZ / 100;
        let mut times = Vec::new();
        for number in 0..400u64 {
            let reference = (number % 100 == 0).then(|| (begin + number * CLOCK_HZ / 10_000) % REFERENCES);
            times.push(clock.time_ns(&packet(256, reference)).unwrap());
        }
        assert!(times[..100].iter().all(|time| *time == 0));
        for (number, time) in times.iter().enumerate().skip(100) {
            assert_eq!(*time, number as u64 * 100_000);
        }
    }

    #[test]
    fn a_jump_of_the_references_goes_on_and_other_programs_do_not_matter() {
        let mut clock = TsClock::default();
        let mut time = |packets: u64, reference| {
            let time = clock.time_ns(&packet(256, Some(reference))).unwrap();
            for _ in 1..packets {
                clock.time_ns(&packet(257, Some(7))).unwrap();
            }
            time
        };
        let ms = CLOCK_HZ / 1000;
        assert_eq!(time(10, 500 * ms), 0);
        assert_eq!(time(10, 510 * ms), 10_000_000);
        // A jump back: the stream goes on at its rate.
        assert_eq!(time(10, 100 * ms), 20_000_000);
        assert_eq!(time(10, 110 * ms), 30_000_000);
        assert_eq!(TsClock::default().time_ns(&[0; TS_PACKET_BYTES]), None);
    }
}
