//! Commands of the controller in software: admin commands, and those of the NVM command set.

use super::state::{State, Taken};
use crate::completion::StatusField;

/// Size of a page, in bytes.
const PAGE: u64 = 4096;

const SUCCESS: StatusField = StatusField(0);
const INVALID_OPCODE: StatusField = StatusField(0x01);
const INVALID_FIELD: StatusField = StatusField(0x02);
const DATA_TRANSFER_ERROR: StatusField = StatusField(0x04);
const INVALID_NAMESPACE: StatusField = StatusField(0x0b);
const PRP_OFFSET_INVALID: StatusField = StatusField(0x13);
const OUT_OF_RANGE: StatusField = StatusField(0x80);
const COMPARE_FAILURE: StatusField = StatusField(0x285);

impl State {
    /// Carries out an admin command.
    pub(super) fn administer(&mut self, taken: Taken) {
        if self.ignored_admin.contains(&taken.opcode()) {
            return;
        }
        let failing = self.failing_admin.iter().position(|(opcode, _)| *opcode == taken.opcode());
        if let Some(index) = failing {
            let (_, status) = self.failing_admin.remove(index);
            return self.complete(&taken, 0, status);
        }
        let (ten, eleven) = (taken.words[10], taken.words[11]);
        let (mut value, mut status) = (0, SUCCESS);
        match taken.opcode() {
            0x01 => {
                let (number, entries) = (ten as u16, (ten >> 16) + 1);
                let completions = (eleven >> 16) as u16;
                let is_valid = number > 0 && self.completions.contains_key(&completions) && eleven & 1 == 1;
                assert!(is_valid && entries <= self.options.queue_entries_max, "a valid submission queue");
                self.create_submissions(number, taken.long(6), entries, completions);
            }
            0x05 => {
                let (number, entries) = (ten as u16, (ten >> 16) + 1);
                assert!(number > 0 && eleven & 1 == 1 && entries <= self.options.queue_entries_max);
                let vector = (eleven >> 1 & 1 == 1).then_some((eleven >> 16) as u16);
                self.create_completions(number, taken.long(6), entries, vector);
            }
            0x02 => {
                let bytes = ((ten >> 16) as usize + 1) * 4;
                self.is_masked = false;
                let mut page = vec![0; bytes];
                // Commands Supported and Effects: four bytes for each command.
                if ten & 0xff == 5 {
                    let listed =
                        self.options.privileged.iter().filter(|opcode| 4 * usize::from(**opcode) < bytes);
                    listed.for_each(|opcode| page[4 * usize::from(*opcode)] = 1);
                }
                status = self.put(&taken, &page);
            }
            0x06 => status = self.identify(&taken),
            0x08 => value = self.abort((ten >> 16) as u16, ten as u16),
            0x09 if ten & 0xff == 7 => {
                let wanted = (eleven & 0xffff).min(eleven >> 16);
                let granted = wanted.min(u32::from(self.options.queues_max) - 1);
                value = granted << 16 | granted;
            }
            0x09 => {}
            0x0c => {
                self.event_requests.push_back(taken.identifier());
                return self.report_events();
            }
            0x7c if self.options.doorbell_buffers => self.shadow = Some((taken.long(6), taken.long(8))),
            opcode if self.options.privileged.contains(&opcode) => status = self.change(&taken),
            _ => status = INVALID_OPCODE,
        }
        self.complete(&taken, value, status);
        self.report_events();
    }

    /// Carries out a privileged command: checks its fields as the specification says, and counts those that are valid.
    fn change(&mut self, taken: &Taken) -> StatusField {
        let (ten, number) = (taken.words[10], taken.words[1]);
        let has_namespace = number == u32::MAX || (1..=1024).contains(&number);
        let status = match taken.opcode() {
            // Select: attach, detach; create, delete.
            0x15 | 0x0d if ten & 0xf > 1 => INVALID_FIELD,
            0x15 | 0x0d | 0x80 if !has_namespace => INVALID_NAMESPACE,
            // Secure erase settings; there is one format.
            0x80 if ten >> 9 & 7 > 2 => INVALID_FIELD,
            0x80 if ten & 0xf > 0 => StatusField::new(1, 0x0a),
            0x1c if !matches!(ten & 0xf, 1 | 7 | 8 | 9) => INVALID_FIELD,
            0x84 if !(1..=4).contains(&(ten & 7)) => INVALID_FIELD,
            0x10 if matches!(ten >> 3 & 7, 4 | 5) => INVALID_FIELD,
            0x20 if ten & 0xf > 4 => INVALID_FIELD,
            0x24 if ten & 0xf > 4 => INVALID_FIELD,
            0x81 if ten >> 24 == 0 => INVALID_FIELD,
            _ => SUCCESS,
        };
        self.counts.changes += u64::from(status == SUCCESS);
        status
    }

    /// Ends a command in flight. Returns 0 if it was ended, else 1.
    fn abort(&mut self, identifier: u16, queue: u16) -> u32 {
        self.counts.aborts += 1;
        if self.ignores_aborts {
            return 1;
        }
        let is_meant = |taken: &Taken| taken.queue == queue && taken.identifier() == identifier;
        let found = match self.swallowed.iter().position(is_meant) {
            Some(index) => Some(self.swallowed.remove(index)),
            None => self.pending.iter().position(is_meant).map(|index| self.pending.remove(index)),
        };
        let Some(taken) = found else { return 1 };
        self.complete(&taken, 0, StatusField::ABORTED);
        0
    }

    fn identify(&mut self, taken: &Taken) -> StatusField {
        let (structure, number) = (taken.words[10] as u8, taken.words[1]);
        let mut data = vec![0u8; 4096];
        let mut put = |at: usize, bytes: &[u8]| data[at..at + bytes.len()].copy_from_slice(bytes);
        let options = &self.options;
        match structure {
            0 => {
                let found = options.namespaces.iter().find(|namespace| namespace.number == number);
                let Some(namespace) = found else { return INVALID_NAMESPACE };
                put(0, &namespace.blocks.to_le_bytes());
                // One format: metadata size, block size.
                put(128, &namespace.metadata.to_le_bytes());
                put(130, &[namespace.block_exponent]);
            }
            1 => {
                put(4, b"model0001           ");
                put(24, b"A controller in software                ");
                put(77, &[options.transfer_exponent]);
                put(257, &[u8::from(options.doorbell_buffers)]);
                put(512, &[0x66, 0x44]);
                let bits = u8::from(options.compare)
                    | u8::from(options.deallocate) << 2
                    | u8::from(options.write_zeroes) << 3
                    | u8::from(options.verify) << 7;
                put(520, &[bits]);
                put(536, &[u8::from(options.scatter_gather)]);
            }
            2 => {
                let mut numbers: Vec<u32> =
                    options.namespaces.iter().map(|namespace| namespace.number).collect();
                numbers.sort_unstable();
                for (index, listed) in numbers.into_iter().filter(|listed| *listed > number).enumerate() {
                    put(4 * index, &listed.to_le_bytes());
                }
            }
            6 => put(0, &[options.verify_exponent]),
            _ => return INVALID_FIELD,
        }
        self.put(taken, &data)
    }

    /// Carries out a command of the NVM command set.
    pub(super) fn execute(&mut self, taken: &Taken) -> StatusField {
        let number = taken.words[1];
        let Some(namespace) = self.options.namespaces.iter().find(|namespace| namespace.number == number)
        else {
            return INVALID_NAMESPACE;
        };
        let (shift, size) = (u32::from(namespace.block_exponent), namespace.blocks);
        let (first, count) = (taken.long(10), u64::from(taken.words[12] & 0xffff) + 1);
        let opcode = taken.opcode();
        if opcode == 0x00 {
            return SUCCESS;
        }
        if opcode == 0x09 && self.options.deallocate {
            return self.deallocate(taken, number, shift, size);
        }
        if first.checked_add(count).is_none_or(|end| end > size) {
            return OUT_OF_RANGE;
        }
        if let Some(status) = self.failure(first, count) {
            return status;
        }
        let range = (first << shift) as usize..((first + count) << shift) as usize;
        let most = self.options.transfer_exponent;
        let moves = matches!(opcode, 0x01 | 0x02 | 0x05);
        if moves && most > 0 && range.len() as u64 > PAGE << most {
            return INVALID_FIELD;
        }
        match opcode {
            0x01 => {
                let mut data = vec![0; range.len()];
                let status = self.get(taken, &mut data);
                if status == SUCCESS {
                    self.contents_of(number)[range].copy_from_slice(&data);
                }
                status
            }
            0x02 => {
                let data = self.contents_of(number)[range].to_vec();
                self.put(taken, &data)
            }
            0x05 if self.options.compare => {
                let mut data = vec![0; range.len()];
                let status = self.get(taken, &mut data);
                let is_same = self.contents_of(number)[range] == data;
                if status == SUCCESS && !is_same { COMPARE_FAILURE } else { status }
            }
            0x0c if self.options.verify => {
                let most = self.options.verify_exponent;
                if most > 0 && range.len() as u64 > PAGE << most {
                    return INVALID_FIELD;
                }
                self.counts.verified += count;
                SUCCESS
            }
            0x08 if self.options.write_zeroes => {
                self.contents_of(number)[range].fill(0);
                SUCCESS
            }
            _ => INVALID_OPCODE,
        }
    }

    fn deallocate(&mut self, taken: &Taken, number: u32, shift: u32, size: u64) -> StatusField {
        assert_eq!((taken.words[10], taken.words[11]), (0, 4), "one range, to be deallocated");
        let mut range = [0; 16];
        let status = self.get(taken, &mut range);
        if status != SUCCESS {
            return status;
        }
        let word = |at: usize| u32::from_le_bytes([range[at], range[at + 1], range[at + 2], range[at + 3]]);
        let (count, first) = (u64::from(word(4)), u64::from(word(8)) | u64::from(word(12)) << 32);
        if first.checked_add(count).is_none_or(|end| end > size) {
            return OUT_OF_RANGE;
        }
        self.contents_of(number)[(first << shift) as usize..((first + count) << shift) as usize].fill(0);
        SUCCESS
    }

    fn contents_of(&mut self, number: u32) -> &mut Vec<u8> {
        self.contents.get_mut(&number).expect("a namespace that exists")
    }

    fn failure(&mut self, first: u64, count: u64) -> Option<StatusField> {
        let is_hit = |blocks: &std::ops::Range<u64>| blocks.start < first + count && first < blocks.end;
        let failing = self.failing.iter_mut().find(|failing| failing.times > 0 && is_hit(&failing.blocks))?;
        failing.times -= 1;
        Some(failing.status)
    }

    /// Copies the data of a command out of memory.
    fn get(&mut self, taken: &Taken, data: &mut [u8]) -> StatusField {
        let pieces = match self.pieces(taken, data.len()) {
            Ok(pieces) => pieces,
            Err(status) => return status,
        };
        let mut done = 0;
        for (address, bytes) in pieces {
            if !self.copy_from(address, &mut data[done..done + bytes]) {
                return DATA_TRANSFER_ERROR;
            }
            done += bytes;
        }
        self.counts.bytes += done as u64;
        SUCCESS
    }

    /// Copies the data of a command to memory.
    fn put(&mut self, taken: &Taken, data: &[u8]) -> StatusField {
        let pieces = match self.pieces(taken, data.len()) {
            Ok(pieces) => pieces,
            Err(status) => return status,
        };
        let mut done = 0;
        for (address, bytes) in pieces {
            if !self.copy_to(address, &data[done..done + bytes]) {
                return DATA_TRANSFER_ERROR;
            }
            done += bytes;
        }
        self.counts.bytes += done as u64;
        SUCCESS
    }

    /// Returns the memory that a command's data pointer describes: address and length of each piece.
    fn pieces(&mut self, taken: &Taken, bytes: usize) -> Result<Vec<(u64, usize)>, StatusField> {
        if taken.words[0] >> 14 & 3 == 1 {
            self.list_pieces(taken, bytes)
        } else {
            self.page_pieces(taken, bytes)
        }
    }

    fn page_pieces(&mut self, taken: &Taken, bytes: usize) -> Result<Vec<(u64, usize)>, StatusField> {
        let (first, second) = (taken.long(6), taken.long(8));
        let room = (PAGE - first % PAGE) as usize;
        if !first.is_multiple_of(4) {
            return Err(PRP_OFFSET_INVALID);
        }
        let mut pieces = vec![(first, room.min(bytes))];
        let left = bytes.saturating_sub(room);
        let pages = left.div_ceil(PAGE as usize);
        let entries = match pages {
            0 => vec![],
            1 => vec![second],
            _ => {
                assert!(pages <= 512, "one page of entries");
                let words = self.read_words(second, 2 * pages).ok_or(DATA_TRANSFER_ERROR)?;
                words.chunks(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32).collect()
            }
        };
        let mut left = left;
        for entry in entries {
            if !entry.is_multiple_of(PAGE) {
                return Err(PRP_OFFSET_INVALID);
            }
            pieces.push((entry, left.min(PAGE as usize)));
            left -= left.min(PAGE as usize);
        }
        Ok(pieces)
    }

    fn list_pieces(&mut self, taken: &Taken, bytes: usize) -> Result<Vec<(u64, usize)>, StatusField> {
        if !self.options.scatter_gather {
            return Err(INVALID_FIELD);
        }
        let (address, length, kind) = (taken.long(6), taken.words[8], taken.words[9] >> 24);
        let pieces: Vec<(u64, usize)> = match kind {
            0x00 => vec![(address, length as usize)],
            0x30 => {
                let words = self.read_words(address, length as usize / 4).ok_or(DATA_TRANSFER_ERROR)?;
                let blocks = words.chunks(4).map(|words| {
                    assert_eq!(words[3] >> 24, 0, "a data block");
                    (u64::from(words[0]) | u64::from(words[1]) << 32, words[2] as usize)
                });
                blocks.collect()
            }
            _ => return Err(INVALID_FIELD),
        };
        let sum: usize = pieces.iter().map(|piece| piece.1).sum();
        if sum == bytes { Ok(pieces) } else { Err(INVALID_FIELD) }
    }
}
