//! The client that keeps to the protocol, and a model of its volumes' contents.

use super::{BLOCK, CHUNK, Served};
use bywash_channel::{Client, HugePages, Options, Submission, Wait};
use bywash_link::{Messages, socket_pair};
use bywash_protocol::layout::Opcode;
use bywash_protocol::{Access, ControlReply, ControlRequest};
use std::ops::Range;
use std::os::fd::AsFd;

/// Number of bytes that are read at a time to be compared with the model.
const LOOKED_AT: u64 = 8192;

/// Parameters of a volume that is created.
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    /// Name of the volume.
    pub name: &'static str,
    /// Name of the device that the volume is on.
    pub device: &'static str,
    /// Size of the volume, in bytes.
    pub bytes: u64,
    /// User ID of the owner.
    pub owner: u32,
    /// Mode, as for chmod(1).
    pub mode: u16,
}

/// Client that keeps to the protocol, and is an administrator.
pub struct Good {
    messages: Messages,
    channel: Client,
    own: Vec<Own>,
    inputs: u64,
}

/// Volume that only the good client writes.
struct Own {
    name: &'static str,
    grant: u64,
    model: Vec<u8>,
}

impl Good {
    /// Connects the client, creates `volumes` in this order, and opens those named in `own`. Others may read
    /// the latter, but only this client may write them.
    pub fn come(served: &mut Served, volumes: &[Volume], own: &[&'static str]) -> Good {
        let connection = served.connection();
        let messages = served.greet(connection);
        let (here, there) = socket_pair().unwrap();
        let options =
            Options::new().depth(8).arena_bytes(4 << 20).wait(Wait::Adaptive).huge_pages(HugePages::No);
        let making = std::thread::spawn(move || Client::over(here, &options).unwrap());
        assert_eq!(
            served.ask(&messages, &ControlRequest::SetUpChannel {}, &[there.as_fd()]).unwrap().0,
            ControlReply::Done {}
        );
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

    /// Sends an administrator's request, which must succeed.
    pub fn administer(&self, served: &mut Served, ask: ControlRequest) {
        assert_eq!(served.ask(&self.messages, &ask, &[]).unwrap().0, ControlReply::Done {}, "{ask:?}");
    }

    fn create(&self, served: &mut Served, volume: &Volume) {
        let Volume { name, device, bytes, owner, mode } = *volume;
        let (volume, device) = (name.into(), device.into());
        self.administer(
            served,
            ControlRequest::Create { volume, device, bytes, owner, group: 0, mode, is_thin: false },
        );
    }

    /// Fills a volume with a random word, and returns the word.
    pub fn hide(&mut self, served: &mut Served, volume: &str) -> u64 {
        let mut secret = [0; 8];
        // SAFETY: the buffer has eight bytes and outlives the call.
        assert_eq!(unsafe { libc::getrandom(secret.as_mut_ptr().cast(), 8, 0) }, 8);
        let grant = self.open(served, volume, Access::ReadWrite);
        self.request(served, Opcode::Write, [grant, 0, LOOKED_AT], Some(&mut secret.repeat(1024)));
        u64::from_ne_bytes(secret)
    }

    fn open(&self, served: &mut Served, volume: &str, access: Access) -> u64 {
        match served
            .ask(&self.messages, &ControlRequest::Open { volume: volume.into(), access }, &[])
            .unwrap()
            .0
        {
            ControlReply::Granted(granted) => granted.grant,
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

    /// Returns the bytes of some blocks of a volume; block numbers beyond its end wrap around.
    fn part(&self, volume: usize, block: u64, blocks: u64) -> Range<usize> {
        let has = self.own[volume].model.len() as u64 / BLOCK;
        let first = block % has;
        let end = (first + blocks.max(1)).min(has);
        (first * BLOCK) as usize..(end * BLOCK) as usize
    }

    fn place(&self, volume: usize, part: &Range<usize>) -> [u64; 3] {
        [self.own[volume].grant, part.start as u64, part.len() as u64]
    }

    /// Writes blocks of one of its volumes; indices and numbers beyond the end wrap around.
    pub fn write(&mut self, served: &mut Served, volume: usize, block: u64, blocks: u64, seed: u8) {
        let volume = volume % self.own.len();
        let part = self.part(volume, block, blocks);
        self.own[volume].model[part.clone()].fill(seed);
        let at = self.place(volume, &part);
        self.request(served, Opcode::Write, at, Some(&mut vec![seed; part.len()]));
    }

    /// Sets blocks of one of its volumes to zeros.
    pub fn zero(&mut self, served: &mut Served, volume: usize, block: u64, blocks: u64) {
        let volume = volume % self.own.len();
        let part = self.part(volume, block, blocks);
        self.own[volume].model[part.clone()].fill(0);
        let at = self.place(volume, &part);
        self.request(served, Opcode::WriteZeroes, at, None);
    }

    /// Reads blocks of one of its volumes, and compares them with the model.
    pub fn check(&mut self, served: &mut Served, volume: usize, block: u64, blocks: u64) {
        let volume = volume % self.own.len();
        let part = self.part(volume, block, blocks);
        let mut there = vec![0xee; part.len()];
        let at = self.place(volume, &part);
        self.request(served, Opcode::Read, at, Some(&mut there));
        assert!(there == self.own[volume].model[part], "bytes of {} have changed", self.own[volume].name);
    }

    /// Compares a part of each volume with the model, another part each time, and now and then a whole chunk.
    pub fn check_all(&mut self, served: &mut Served) {
        self.inputs += 1;
        let place = self.inputs * (LOOKED_AT / BLOCK);
        (0..self.own.len()).for_each(|volume| self.check(served, volume, place, LOOKED_AT / BLOCK));
        if self.inputs.is_multiple_of(256) {
            (0..self.own.len()).for_each(|volume| self.check(served, volume, 0, CHUNK / BLOCK));
        }
    }

    /// Removes a volume and creates it again, and checks that the new one has no contents of an old one.
    pub fn renew(&mut self, served: &mut Served, volume: &Volume) {
        self.administer(served, ControlRequest::Remove { volume: volume.name.into() });
        self.create(served, volume);
        let grant = self.open(served, volume.name, Access::Read);
        for at in [0, volume.bytes / 2, volume.bytes - LOOKED_AT] {
            let mut there = vec![1; LOOKED_AT as usize];
            self.request(served, Opcode::Read, [grant, at, LOOKED_AT], Some(&mut there));
            assert!(there == [0; LOOKED_AT as usize], "a new volume has what somebody wrote");
        }
        self.administer(served, ControlRequest::Close { grant });
    }
}
