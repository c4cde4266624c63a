use super::*;
use crate::layout::OPTION_REPLY_MAGIC;
use bywash_device::{Access, Geometry};

const GEOMETRY: Geometry = Geometry {
    bytes: 1 << 20,
    block: 512,
    optimal: 4096,
    transfer_max: 1 << 20,
    range_max: 1 << 20,
    segments_max: 1,
    access: Access::ReadWrite,
};

fn faces(names: &[&str]) -> Vec<Face> {
    let face = |(number, name): (usize, &&str)| {
        let (name, description) = (name.to_string(), "a disk".into());
        Face { number, name, description, geometry: GEOMETRY }
    };
    names.iter().enumerate().map(face).collect()
}

fn message(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

/// A handshake in progress, and what its server has sent.
struct Talk {
    handshake: Handshake,
    faces: Vec<Face>,
}

impl Talk {
    fn new(names: &[&str], flags: u32) -> Talk {
        let mut talk = Talk { handshake: Handshake::default(), faces: faces(names) };
        assert_eq!(talk.step(&flags.to_be_bytes()), (Step::Again, vec![]));
        talk
    }

    /// Passes a message byte by byte, which must consume it all at its end and nothing before.
    fn step(&mut self, bytes: &[u8]) -> (Step, Vec<u8>) {
        let mut out = Vec::new();
        for end in 0..bytes.len() {
            assert_eq!(self.handshake.step(&bytes[..end], &mut out, &self.faces), (0, Step::More));
        }
        let (consumed, step) = self.handshake.step(bytes, &mut out, &self.faces);
        if !matches!(step, Step::Broken(_)) {
            assert_eq!(consumed, bytes.len());
        }
        (step, out)
    }

    /// Sends an option and returns the types and data of the replies.
    fn option(&mut self, option: u32, data: &[u8]) -> (Step, Vec<(u32, Vec<u8>)>) {
        let (step, out) = self.step(&message(option, data));
        (step, replies(&out, option))
    }

    fn kinds(&mut self, option: u32, data: &[u8]) -> Vec<u32> {
        self.option(option, data).1.into_iter().map(|(kind, _)| kind).collect()
    }
}

fn replies(mut out: &[u8], option: u32) -> Vec<(u32, Vec<u8>)> {
    let mut all = Vec::new();
    while !out.is_empty() {
        assert_eq!(out[..8], OPTION_REPLY_MAGIC.to_be_bytes());
        assert_eq!(out[8..12], option.to_be_bytes());
        let number = |at: usize| u32::from_be_bytes(out[at..at + 4].try_into().unwrap());
        let (kind, length) = (number(12), number(16) as usize);
        all.push((kind, out[20..20 + length].to_vec()));
        out = &out[20 + length..];
    }
    all
}

const FIXED: u32 = CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES;

fn go(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut data = string(name);
    data.extend((wanted.len() as u16).to_be_bytes());
    data.extend(wanted.iter().flat_map(|kind| kind.to_be_bytes()));
    data
}

#[test]
fn the_greeting_offers_the_fixed_newstyle() {
    let mut out = Vec::new();
    Handshake::greet(&mut out);
    assert_eq!(out, b"NBDMAGICIHAVEOPT\0\x03");
}

#[test]
fn unknown_flags_of_a_client_end_the_connection() {
    for flags in [4, u32::MAX] {
        let mut handshake = Handshake::default();
        let (_, step) = handshake.step(&u32::to_be_bytes(flags), &mut Vec::new(), &faces(&["a"]));
        assert!(matches!(step, Step::Broken(_)), "{flags}");
    }
}

#[test]
fn an_export_is_chosen_by_its_name_with_or_without_zeros() {
    for (flags, zeroes) in [(0, 124), (CLIENT_FIXED_NEWSTYLE, 124), (CLIENT_NO_ZEROES, 0), (FIXED, 0)] {
        let mut talk = Talk::new(&["a", "b"], flags);
        let (step, out) = talk.step(&message(option::EXPORT_NAME, b"b"));
        let agreement = Agreement { disk: 1, is_structured: false, has_context: false };
        assert_eq!(step, Step::Transmission(agreement));
        assert_eq!(out.len(), 10 + zeroes);
        assert_eq!(out[..8], GEOMETRY.bytes.to_be_bytes());
        assert_eq!(out[8..10], transmission_flags(&GEOMETRY, false).to_be_bytes());
    }
    let (step, out) = Talk::new(&["a"], FIXED).step(&message(option::EXPORT_NAME, b"c\n"));
    assert_eq!((step, out), (Step::Broken("there is no export 'c'".into()), vec![]));
}

#[test]
fn without_the_fixed_newstyle_there_is_one_option() {
    let (step, _) = Talk::new(&["a"], 0).step(&message(option::LIST, b""));
    assert!(matches!(step, Step::Broken(_)));
}

#[test]
fn exports_are_listed() {
    let mut talk = Talk::new(&["a", "bc"], FIXED);
    let (step, replies) = talk.option(option::LIST, b"");
    assert_eq!(step, Step::Again);
    let listed = |name: &str| (reply::SERVER, [string(name), b"a disk".to_vec()].concat());
    assert_eq!(replies, [listed("a"), listed("bc"), (reply::ACK, vec![])]);
    assert_eq!(talk.kinds(option::LIST, b"x"), [reply::ERR_INVALID]);
}

#[test]
fn info_and_go_tell_of_an_export() {
    let mut talk = Talk::new(&["a"], FIXED);
    let wanted = [info::NAME, info::DESCRIPTION, info::BLOCK_SIZE, 77];
    let (step, replies) = talk.option(option::INFO, &go("", &wanted));
    assert_eq!(step, Step::Again);
    let flags = transmission_flags(&GEOMETRY, false).to_be_bytes();
    let told = |kind: u16, data: &[u8]| (reply::INFO, [&kind.to_be_bytes(), data].concat());
    let sizes = [&512u32.to_be_bytes()[..], &4096u32.to_be_bytes(), &(32u32 << 20).to_be_bytes()].concat();
    let all = [
        told(info::EXPORT, &[&GEOMETRY.bytes.to_be_bytes()[..], &flags].concat()),
        told(info::NAME, b"a"),
        told(info::DESCRIPTION, b"a disk"),
        told(info::BLOCK_SIZE, &sizes),
        (reply::ACK, vec![]),
    ];
    assert_eq!(replies, all);
    let agreement = Agreement { disk: 0, is_structured: false, has_context: false };
    assert_eq!(talk.option(option::GO, &go("a", &wanted)), (Step::Transmission(agreement), all.to_vec()));
}

#[test]
fn info_wants_the_block_size_to_be_asked_for_and_go_does_not() {
    let mut talk = Talk::new(&["a"], FIXED);
    let kinds = talk.kinds(option::INFO, &go("a", &[]));
    assert_eq!(kinds, [reply::INFO, reply::INFO, reply::ERR_BLOCK_SIZE_REQD]);
    assert_eq!(talk.kinds(option::GO, &go("a", &[])), [reply::INFO, reply::INFO, reply::ACK]);
}

#[test]
fn wrong_names_and_lengths_are_refused() {
    let mut talk = Talk::new(&["a", "b"], FIXED);
    for (data, kind) in [
        (go("c", &[3]), reply::ERR_UNKNOWN),
        // Of two exports none is the default.
        (go("", &[3]), reply::ERR_UNKNOWN),
        (vec![], reply::ERR_INVALID),
        (string("a"), reply::ERR_INVALID),
        ([string("a"), vec![0, 2, 0, 3]].concat(), reply::ERR_INVALID),
        ([go("a", &[3]), vec![0]].concat(), reply::ERR_INVALID),
        (u32::MAX.to_be_bytes().to_vec(), reply::ERR_INVALID),
        ([&5000u32.to_be_bytes()[..], &[b'x'; 5002]].concat(), reply::ERR_INVALID),
    ] {
        for option in [option::INFO, option::GO] {
            assert_eq!(talk.option(option, &data).0, Step::Again);
            assert_eq!(talk.kinds(option, &data), [kind], "{data:?}");
        }
    }
}

#[test]
fn contexts_are_listed_and_selected() {
    let queries = |name: &str, all: &[&str]| {
        let count = (all.len() as u32).to_be_bytes().to_vec();
        let all = all.iter().flat_map(|query| string(query)).collect();
        [string(name), count, all].concat()
    };
    let context = |id: u32| (reply::META_CONTEXT, [&id.to_be_bytes()[..], b"base:allocation"].concat());
    let (ack, invalid) = ((reply::ACK, vec![]), reply::ERR_INVALID);
    let mut talk = Talk::new(&["a", "b"], FIXED);
    for option in [option::LIST_META_CONTEXT, option::SET_META_CONTEXT] {
        assert_eq!(talk.kinds(option, &queries("a", &[ALLOCATION])), [invalid], "before structured replies");
    }
    assert_eq!(talk.kinds(option::STRUCTURED_REPLY, b"x"), [invalid]);
    assert_eq!(talk.kinds(option::STRUCTURED_REPLY, b""), [reply::ACK]);
    assert_eq!(talk.kinds(option::STRUCTURED_REPLY, b""), [invalid]);
    let list = option::LIST_META_CONTEXT;
    for all in [&[][..], &["base:"], &["x:y", ALLOCATION], &["base:allocation", "base:"]] {
        assert_eq!(talk.option(list, &queries("a", all)).1, [context(0), ack.clone()], "{all:?}");
    }
    for all in [&["x:"][..], &["base:other"], &["qemu:dirty-bitmap:b"]] {
        assert_eq!(talk.option(list, &queries("a", all)).1, std::slice::from_ref(&ack), "{all:?}");
    }
    let set = option::SET_META_CONTEXT;
    assert_eq!(talk.kinds(set, &queries("c", &[ALLOCATION])), [reply::ERR_UNKNOWN]);
    assert_eq!(talk.kinds(set, &queries("a", &[ALLOCATION])[..20]), [invalid]);
    assert_eq!(talk.kinds(set, &[queries("a", &[ALLOCATION]), vec![0]].concat()), [invalid]);
    assert_eq!(talk.option(set, &queries("a", &["base:"])).1, std::slice::from_ref(&ack));
    assert_eq!(talk.option(set, &queries("b", &[ALLOCATION])).1, [context(1), ack.clone()]);
    // The context was selected for the other export.
    for (name, has_context) in [("a", false), ("b", true)] {
        let handshake = Handshake {
            has_flags: true,
            is_fixed: true,
            is_structured: true,
            context: talk.handshake.context,
            ..Handshake::default()
        };
        let mut fresh = Talk { handshake, faces: talk.faces.clone() };
        let agreement = Agreement { disk: usize::from(name == "b"), is_structured: true, has_context };
        assert_eq!(fresh.option(option::GO, &go(name, &[3])).0, Step::Transmission(agreement));
    }
}

#[test]
fn options_that_are_not_offered_are_refused_by_name() {
    let mut talk = Talk::new(&["a"], FIXED);
    assert_eq!(talk.kinds(option::STARTTLS, b""), [reply::ERR_POLICY]);
    assert_eq!(talk.kinds(option::STARTTLS, b"x"), [reply::ERR_INVALID]);
    for option in [0, 4, 11, u32::MAX] {
        assert_eq!(talk.kinds(option, b"data"), [reply::ERR_UNSUP]);
    }
    assert_eq!(talk.option(option::ABORT, b"ignored"), (Step::End, vec![(reply::ACK, vec![])]));
}

#[test]
fn an_option_that_is_too_long_is_skipped_or_ends_the_connection() {
    let mut talk = Talk::new(&["a"], FIXED);
    let long = message(option::LIST, &vec![0; OPTION_MAX as usize + 1]);
    let (mut out, mut at) = (Vec::new(), 0);
    loop {
        // Small pieces, of which nothing is stored.
        let piece = &long[at..(at + 1000).min(long.len())];
        let (consumed, step) = talk.handshake.step(piece, &mut out, &talk.faces);
        at += consumed;
        assert!(consumed > 0 && !matches!(step, Step::Broken(_)));
        if at == long.len() {
            break;
        }
        assert!(out.is_empty());
    }
    assert_eq!(replies(&out, option::LIST)[0].0, reply::ERR_TOO_BIG);
    assert_eq!(talk.kinds(option::LIST, b"").last(), Some(&reply::ACK), "the next option is found");
    let skip = |handshake: &mut Handshake, number: u32| {
        let (long, mut out) = (message(number, &vec![0; OPTION_MAX as usize + 1]), Vec::new());
        assert_eq!(handshake.step(&long, &mut out, &talk.faces), (OPTION_BYTES, Step::Again));
        let (_, step) = handshake.step(&long[OPTION_BYTES..], &mut out, &talk.faces);
        (step, replies(&out, number)[0].0)
    };
    let mut handshake =
        Handshake { has_flags: true, is_fixed: true, context: Some(0), ..Handshake::default() };
    assert_eq!(skip(&mut handshake, option::SET_META_CONTEXT), (Step::Again, reply::ERR_TOO_BIG));
    assert_eq!(handshake.context, None, "a request that fails selects nothing");
    assert_eq!(skip(&mut handshake, option::ABORT), (Step::End, reply::ACK));
    let mut before_tls = Handshake { has_flags: true, is_fixed: true, ..Handshake::new(true) };
    assert_eq!(skip(&mut before_tls, option::LIST), (Step::Again, reply::ERR_TLS_REQD));
    for (option, length) in [(option::LIST, u32::MAX), (option::EXPORT_NAME, OPTION_MAX + 1)] {
        let header = [&message(option, b"")[..12], &length.to_be_bytes()].concat();
        let (_, step) = talk.handshake.step(&header, &mut Vec::new(), &talk.faces);
        assert!(matches!(step, Step::Broken(_)), "{option}");
    }
    let (_, step) = talk.handshake.step(b"IHAVEOPX\0\0\0\x03\0\0\0\0", &mut Vec::new(), &talk.faces);
    assert!(matches!(step, Step::Broken(_)), "wrong magic number");
}
