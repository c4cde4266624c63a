//! Power failures: whatever a client was told is durable is there afterwards, whichever connection it was told on.

use crate::client::*;
use crate::served::Served;
use bywash_device::testing::{Crash, Faulty};
use bywash_device::{Command, Completion, Device, Geometry, Memory, MemoryOptions, QueueFull};
use bywash_nbd::{Disk, Options};
use proptest::prelude::*;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Blocks of the disk, of 512 bytes.
const BLOCKS: usize = 64;
const BLOCK: usize = 512;

/// Device that loses power, which a test takes back when its export has stopped.
#[derive(Clone)]
struct Shared(Arc<Mutex<Faulty<Memory>>>);

impl Shared {
    fn new(seed: u64) -> Shared {
        let memory = Memory::new(MemoryOptions::new((BLOCKS * BLOCK) as u64)).unwrap();
        Shared(Arc::new(Mutex::new(Faulty::over(memory, seed))))
    }

    /// Returns the memory as a power failure leaves it.
    fn crash(self, crash: Crash) -> Memory {
        let device = Arc::into_inner(self.0).expect("the export has dropped the device");
        device.into_inner().unwrap().crash(crash)
    }
}

impl Device for Shared {
    fn geometry(&self) -> Geometry {
        self.0.lock().unwrap().geometry()
    }

    fn submit<'a>(&mut self, command: Command<'a>) -> Result<(), QueueFull<'a>> {
        self.0.lock().unwrap().submit(command)
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        self.0.lock().unwrap().reap(done)
    }

    fn arm(&mut self) -> bool {
        self.0.lock().unwrap().arm()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn depth(&self) -> usize {
        self.0.lock().unwrap().depth()
    }

    fn in_flight(&self) -> usize {
        self.0.lock().unwrap().in_flight()
    }

    fn description(&self) -> String {
        self.0.lock().unwrap().description()
    }
}

/// Contents that a block may have after a power failure, each as the byte that fills it.
#[derive(Clone, Debug, Default)]
struct Block {
    durable: u8,
    /// Writes since, in their order.
    later: Vec<u8>,
}

impl Block {
    fn settle(&mut self) {
        self.durable = self.later.drain(..).next_back().unwrap_or(self.durable);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write { first: usize, count: usize, is_durable: bool },
    Zero { first: usize, count: usize, is_durable: bool },
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    let range = (0..BLOCKS, 1..12usize).prop_map(|(first, count)| (first, count.min(BLOCKS - first)));
    prop_oneof![
        6 => (range.clone(), prop::bool::weighted(0.2))
            .prop_map(|((first, count), is_durable)| Step::Write { first, count, is_durable }),
        1 => (range, any::<bool>())
            .prop_map(|((first, count), is_durable)| Step::Zero { first, count, is_durable }),
        1 => Just(Step::Flush),
    ]
}

/// Carries a step out, waits for its reply, and notes what may be there after a power failure.
fn carry_out(client: &mut Client, model: &mut [Block], step: &Step, byte: u8) {
    let note = |model: &mut [Block], first: usize, count: usize, byte, is_durable| {
        for block in &mut model[first..first + count] {
            block.later.push(byte);
            if is_durable {
                block.settle();
            }
        }
    };
    match *step {
        Step::Write { first, count, is_durable } => {
            let data = vec![byte; count * BLOCK];
            assert_eq!(client.write(u16::from(is_durable), (first * BLOCK) as u64, &data), 0);
            note(model, first, count, byte, is_durable);
        }
        Step::Zero { first, count, is_durable } => {
            let (offset, length) = ((first * BLOCK) as u64, (count * BLOCK) as u32);
            assert_eq!(client.ask(WRITE_ZEROES, u16::from(is_durable), offset, length), 0);
            note(model, first, count, 0, is_durable);
        }
        Step::Flush => {
            assert_eq!(client.ask(FLUSH, 0, 0, 0), 0);
            model.iter_mut().for_each(Block::settle);
        }
    }
}

#[test]
fn what_was_flushed_on_any_connection_is_there_after_a_power_failure() {
    let lost = AtomicU64::new(0);
    let config = ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(
        steps in prop::collection::vec((step(), 0..3usize), 1..60),
        last in prop::collection::vec(0..BLOCKS, 0..20),
        seed in any::<u64>(),
        crash in prop_oneof![Just(Crash::Lose), Just(Crash::Prefix), Just(Crash::Any)],
    )| {
        let device = Shared::new(seed);
        let mut served = Served::new(vec![Disk::new("disk", device.clone())], Options::new());
        let mut clients = [served.simple(), served.structured(), served.simple()];
        let mut model = vec![Block::default(); BLOCKS];
        let mut bytes = (1..=u8::MAX).cycle();
        for (step, client) in &steps {
            carry_out(&mut clients[*client], &mut model, step, bytes.next().unwrap());
        }
        // Writes that nobody has heard of may be there or not.
        for number in last {
            let byte = bytes.next().unwrap();
            let header = request(WRITE, 0, 1, (number * BLOCK) as u64, BLOCK as u32);
            clients[number % 3].send(&[&header[..], &[byte; BLOCK]].concat());
            model[number].later.push(byte);
        }
        drop(served.export.take());
        drop(clients);
        let served = Served::one(device.crash(crash));
        let data = served.simple().read(0, BLOCKS * BLOCK);
        for (number, (found, block)) in data.chunks(BLOCK).zip(&model).enumerate() {
            let byte = found[0];
            assert!(found.iter().all(|other| *other == byte), "block {number} is torn");
            assert!(byte == block.durable || block.later.contains(&byte), "block {number}: {byte} of {block:?}");
            let newest = block.later.last().unwrap_or(&block.durable);
            lost.fetch_add(u64::from(byte != *newest), Ordering::Relaxed);
        }
    });
    assert!(lost.into_inner() > 0, "no power failure has lost anything");
}
