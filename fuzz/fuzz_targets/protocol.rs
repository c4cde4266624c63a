//! Bytes as messages of a device server's socket, and numbers as requests over its channel.
//!
//! Failures that this looks for: invalid bytes are accepted as a message; a message means something else
//! after encoding and decoding; a request is accepted whose buffer does not have the length that it needs; a
//! panic.

#![no_main]
#![expect(clippy::unwrap_used, reason = "a fuzz target fails by panicking")]

use arbitrary::Arbitrary;
use bywash_fuzz::{Few, Size, Value};
use bywash_protocol::layout::{Opcode, PIECE_BYTES, PIECES_MAX, Piece, asked};
use bywash_protocol::{Answer, Ask, Code, MESSAGE_BYTES_MAX, Refused, notices, report};
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
    Piece([u8; PIECE_BYTES]),
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
        let piece = Piece::of_bytes(&bytes);
        assert_eq!(piece.to_bytes(), bytes);
        let (grant, word) = (piece.grant, piece.offset);
        assert_eq!(notices::is_valid(grant, word), notices::tag_of(grant) > word);
        assert_eq!(notices::tag_of(grant) << 32 | notices::place_of(grant) as u64, grant);
    }
    Input::Refusal(text, times) => {
        let refused = Refused::new(Code::Failed, text.repeat(usize::from(times % 300)));
        let bytes = Answer::Refused(refused.clone()).to_bytes().unwrap();
        assert_eq!(Answer::of_bytes(&bytes), Ok(Answer::Refused(refused)));
    }
});

fn read(bytes: &[u8]) {
    if let Ok(ask) = Ask::of_bytes(bytes) {
        // A decoded message can be encoded, perhaps to more bytes, and then means the same.
        if let Ok(said) = ask.to_bytes() {
            assert!(said.len() <= MESSAGE_BYTES_MAX);
            assert_eq!(Ask::of_bytes(&said), Ok(ask));
        }
    }
    if let Ok(answer) = Answer::of_bytes(bytes)
        && let Ok(said) = answer.to_bytes()
    {
        assert_eq!(Answer::of_bytes(&said), Ok(answer));
    }
    let _ = serde_json::from_slice::<report::Status>(bytes);
    let _ = serde_json::from_slice::<Vec<report::Volume>>(bytes);
}

fn request(opcode: u8, flags: u8, arguments: &[u64; 6], buffer: usize) {
    let Ok(found) = asked(opcode, flags, arguments, buffer) else { return };
    assert_eq!((found.opcode as u8, found.fua), (opcode, flags == 1));
    assert_eq!(found.head as u64 + found.data, buffer as u64);
    match found.opcode {
        Opcode::ReadMany | Opcode::WriteMany => {
            let count = found.piece.length as usize;
            assert!((1..=PIECES_MAX).contains(&count) && found.head == count * PIECE_BYTES);
        }
        Opcode::Read | Opcode::Write => assert_eq!(found.piece.length, found.data),
        Opcode::CompareAndWrite => assert_eq!(found.piece.length * 2, found.data),
        Opcode::Flush | Opcode::Discard | Opcode::WriteZeroes => assert_eq!(buffer, 0),
    }
    assert!(found.head > 0 || found.piece.grant == arguments[0]);
}
