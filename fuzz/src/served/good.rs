//! The client that keeps to the protocol, and a model of what its volumes have.

use super::{BLOCK, CHUNK, Served};
use bywash_channel::{Client, HugePages, Options, Submission, Wait};
use bywash_link::{Messages, socket_pair};
use bywash_protocol::layout::Opcode;
use bywash_protocol::{Access, Answer, Ask};
use std::ops::Range;
use std::os::fd::AsFd;

/// Bytes that are read at a time to be held against the model.
const LOOKED_AT: u64 = 8192;

/// A volume, as it is created.
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    /// Its name.
    pub name: &'static str,
    /// Device that it is on.
    pub device: &'static str,
    /// Its size.
    pub bytes: u64,
    /// User who owns it.
    pub owner: u32,
    /// Permissions, as chmod(1) has them.
    pub mode: u16,
}

/// The client, which is an administrator too.
pub struct Good {
    messages: Messages,
    channel: Client,
    own: Vec<Own>,
    inputs: u64,
}

/// A volume that nobody else writes.
struct Own {
    name: &'static str,
    grant: u64,
    model: Vec<u8>,
}

impl Good {
    /// It comes, and creates volumes in this order, of which it opens those that `own` has; whoever else may read them,
    /// nobody else may write there.
    pub fn come(served: &mut Served, volumes: &[Volume], own: &[&'static str]) -> Good {
        let connection = served.connection();
        let messages = served.greet(connection);
        let (here, there) = socket_pair().unwrap();
        let options =
            Options::new().depth(8).arena_bytes(4 << 20).wait(Wait::Adaptive).huge_pages(HugePages::No);
        let making = std::thread::spawn(move || Client::over(here, &options).unwrap());
        assert_eq!(served.ask(&messages, &Ask::Channel {}, &[there.as_fd()]).unwrap().0, Answer::Done {});
        let channel = making.join().unwrap();
        let mut good = Good { messages, channel, own: Vec::new(), inputs: 0 };
        volumes.iter().for_each(|volume| good.create(served, volume));
        for name in own {
            let volume = volumes.iter().find(|volume| volume.name == *name).unwrap();
            let grant = good.open(served, name, Access::ReadWrite);
            good.own.push(Own { name, grant, model: vec![0; volume.bytes as usize] });
        }
        for volume in 0..own.len() {
            for block in 0..16 {
                good.write(served, volume, block, 1, volume as u8 + 1);
            }
        }
        good
    }

    /// Asks something as an administrator, which has to be done.
    pub fn administer(&self, served: &mut Served, ask: Ask) {
        assert_eq!(served.ask(&self.messages, &ask, &[]).unwrap().0, Answer::Done {}, "{ask:?}");
    }

    fn create(&self, served: &mut Served, volume: &Volume) {
        let Volume { name, device, bytes, owner, mode } = *volume;
        let (volume, device) = (name.into(), device.into());
        self.administer(served, Ask::Create { volume, device, bytes, owner, group: 0, mode });
    }

    /// Fills a volume with a word that nobody can know; answers it.
    pub fn hide(&mut self, served: &mut Served, volume: &str) -> u64 {
        let mut secret = [0; 8];
        // SAFETY: as many live bytes as is said.
        assert_eq!(unsafe { libc::getrandom(secret.as_mut_ptr().cast(), 8, 0) }, 8);
        let grant = self.open(served, volume, Access::ReadWrite);
        self.request(served, Opcode::Write, [grant, 0, LOOKED_AT], Some(&mut secret.repeat(1024)));
        u64::from_ne_bytes(secret)
    }

    fn open(&self, served: &mut Served, volume: &str, access: Access) -> u64 {
        match served.ask(&self.messages, &Ask::Open { volume: volume.into(), access }, &[]).unwrap().0 {
            Answer::Granted(granted) => granted.grant,
            other => panic!("{volume}: {other:?}"),
        }
    }

    fn request(&mut self, served: &mut Served, opcode: Opcode, at: [u64; 3], data: Option<&mut [u8]>) {
        let arguments = [at[0], at[1], at[2], 0, 0, 0];
        let mut submission = Submission::new(opcode as u8).arguments(arguments);
        if let Some(data) = &data {
            let mut buffer = self.channel.alloc(data.len()).unwrap();
            buffer.write(0, data);
            submission = submission.buffer(buffer);
        }
        self.channel.submit(submission).unwrap();
        let done = served.wait(&opcode, || self.channel.try_reap().unwrap());
        assert_eq!((done.status, done.value), (0, at[2]), "{opcode:?} of the good client");
        if let (Some(data), Some(buffer)) = (data, done.buffer) {
            buffer.read(0, data);
        }
    }

    /// Blocks of a volume, from any number on.
    fn part(&self, volume: usize, block: u64, blocks: u64) -> Range<usize> {
        let has = self.own[volume].model.len() as u64 / BLOCK;
        let first = block % has;
        let end = (first + blocks.max(1)).min(has);
        (first * BLOCK) as usize..(end * BLOCK) as usize
    }

    fn place(&self, volume: usize, part: &Range<usize>) -> [u64; 3] {
        [self.own[volume].grant, part.start as u64, part.len() as u64]
    }

    /// Writes blocks of one of its volumes; any numbers lead to some.
    pub fn write(&mut self, served: &mut Served, volume: usize, block: u64, blocks: u64, seed: u8) {
        let volume = volume % self.own.len();
        let part = self.part(volume, block, blocks);
        self.own[volume].model[part.clone()].fill(seed);
        let at = self.place(volume, &part);
        self.request(served, Opcode::Write, at, Some(&mut vec![seed; part.len()]));
    }

    /// Makes blocks of one of its volumes zeros.
    pub fn zero(&mut self, served: &mut Served, volume: usize, block: u64, blocks: u64) {
        let volume = volume % self.own.len();
        let part = self.part(volume, block, blocks);
        self.own[volume].model[part.clone()].fill(0);
        let at = self.place(volume, &part);
        self.request(served, Opcode::WriteZeroes, at, None);
    }

    /// Reads blocks of one of its volumes, which are what the model has.
    pub fn check(&mut self, served: &mut Served, volume: usize, block: u64, blocks: u64) {
        let volume = volume % self.own.len();
        let part = self.part(volume, block, blocks);
        let mut there = vec![0xee; part.len()];
        let at = self.place(volume, &part);
        self.request(served, Opcode::Read, at, Some(&mut there));
        assert!(there == self.own[volume].model[part], "bytes of {} have changed", self.own[volume].name);
    }

    /// Looks at a part of each volume, another one each time, and at all of them now and then.
    pub fn check_all(&mut self, served: &mut Served) {
        self.inputs += 1;
        let place = self.inputs * (LOOKED_AT / BLOCK);
        (0..self.own.len()).for_each(|volume| self.check(served, volume, place, LOOKED_AT / BLOCK));
        if self.inputs.is_multiple_of(256) {
            (0..self.own.len()).for_each(|volume| self.check(served, volume, 0, CHUNK / BLOCK));
        }
    }

    /// Removes a volume and creates it again: one that is new has nothing of what was where it is.
    pub fn renew(&mut self, served: &mut Served, volume: &Volume) {
        self.administer(served, Ask::Remove { volume: volume.name.into() });
        self.create(served, volume);
        let grant = self.open(served, volume.name, Access::Read);
        for at in [0, volume.bytes / 2, volume.bytes - LOOKED_AT] {
            let mut there = vec![1; LOOKED_AT as usize];
            self.request(served, Opcode::Read, [grant, at, LOOKED_AT], Some(&mut there));
            assert!(there == [0; LOOKED_AT as usize], "a new volume has what somebody wrote");
        }
        self.administer(served, Ask::Close { grant });
    }
}
