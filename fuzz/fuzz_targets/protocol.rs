//! Bytes as messages of a device server's socket, and numbers as requests over its channel.
//!
//! Failures that this looks for: invalid bytes are accepted as a message; a message means something else
//! after encoding and decoding; a request is accepted whose buffer does not have the length that it needs; a
//! panic.

#![no_main]
#![expect(clippy::unwrap_used, reason = "a fuzz target fails by panicking")]

use arbitrary::Arbitrary;
use bywash_fuzz::{Few, Size, Value};
use bywash_protocol::layout::{GRANT_RANGE_BYTES, GRANT_RANGES_MAX, GrantRange, Opcode, decode_request};
use bywash_protocol::{
    ControlReply, ControlRequest, MESSAGE_BYTES_MAX, Refusal, RefusalKind, report, revocations,
};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    /// Any bytes.
    Bytes(&'a [u8]),
    /// The beginning of a valid message, followed by any bytes.
    Message(u8, &'a [u8]),
    Request {
        opcode: Few,
        flags: u8,
        arguments: [Value; 6],
        buffer: Size,
        same: bool,
    },
    Piece([u8; GRANT_RANGE_BYTES]),
    Refusal(&'a str, u16),
}

/// Beginnings of messages.
const HEADS: [&str; 12] = [
    r#"{"ask":"hello","version":"#,
    r#"{"ask":"open","volume":""#,
    r#"{"ask":"close","grant":"#,
    r#"{"ask":"map","grant":"#,
    r#"{"ask":"create","volume":""#,
    r#"{"ask":"permit","volume":"x","mode":"#,
    r#"{"ask":"resize","bytes":"#,
    r#"{"answer":"welcome","version":"#,
    r#"{"answer":"granted","grant":"#,
    r#"{"answer":"chunks","chunk_bytes":"#,
    r#"{"answer":"refused","code":""#,
    r#"{"answer":"report""#,
];

fuzz_target!(|input: Input<'_>| match input {
    Input::Bytes(bytes) => read(bytes),
    Input::Message(head, rest) => {
        let head = HEADS[usize::from(head) % HEADS.len()];
        read(&[head.as_bytes(), rest].concat());
    }
    Input::Request { opcode, flags, arguments, buffer, same } => {
        let mut arguments = arguments.map(Value::get);
        if same {
            arguments[2] = buffer.get() as u64;
            arguments[3..].fill(0);
        }
        request(opcode.of(9) as u8, flags % 3, &arguments, buffer.get());
    }
    Input::Piece(bytes) => {
        let piece = GrantRange::from_bytes(&bytes);
        assert_eq!(piece.to_bytes(), bytes);
        let (grant, word) = (piece.grant, piece.offset);
        assert_eq!(revocations::is_valid(grant, word), revocations::tag_of(grant) > word);
        assert_eq!(revocations::tag_of(grant) << 32 | revocations::index_of(grant) as u64, grant);
    }
    Input::Refusal(text, times) => {
        let refused = Refusal::new(RefusalKind::Failed, text.repeat(usize::from(times % 300)));
        let bytes = ControlReply::Refused(refused.clone()).to_bytes().unwrap();
        assert_eq!(ControlReply::from_bytes(&bytes), Ok(ControlReply::Refused(refused)));
    }
});

fn read(bytes: &[u8]) {
    if let Ok(ask) = ControlRequest::from_bytes(bytes) {
        // A decoded message can be encoded, perhaps to more bytes, and then means the same.
        if let Ok(said) = ask.to_bytes() {
            assert!(said.len() <= MESSAGE_BYTES_MAX);
            assert_eq!(ControlRequest::from_bytes(&said), Ok(ask));
        }
    }
    if let Ok(answer) = ControlReply::from_bytes(bytes)
        && let Ok(said) = answer.to_bytes()
    {
        assert_eq!(ControlReply::from_bytes(&said), Ok(answer));
    }
    let _ = serde_json::from_slice::<report::Status>(bytes);
    let _ = serde_json::from_slice::<Vec<report::Volume>>(bytes);
}

fn request(opcode: u8, flags: u8, arguments: &[u64; 6], buffer: usize) {
    let Ok(found) = decode_request(opcode, flags, arguments, buffer) else { return };
    assert_eq!((found.opcode as u8, found.fua), (opcode, flags == 1));
    assert_eq!(found.pieces_bytes as u64 + found.data_bytes, buffer as u64);
    match found.opcode {
        Opcode::ReadRanges | Opcode::WriteRanges => {
            let count = found.piece.length as usize;
            assert!(
                (1..=GRANT_RANGES_MAX).contains(&count) && found.pieces_bytes == count * GRANT_RANGE_BYTES
            );
        }
        Opcode::Read | Opcode::Write => assert_eq!(found.piece.length, found.data_bytes),
        Opcode::CompareAndWrite => assert_eq!(found.piece.length * 2, found.data_bytes),
        Opcode::Flush | Opcode::Discard | Opcode::WriteZeroes => assert_eq!(buffer, 0),
    }
    assert!(found.pieces_bytes > 0 || found.piece.grant == arguments[0]);
}
