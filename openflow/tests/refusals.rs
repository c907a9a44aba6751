//! Every malformed message is refused with the type and code that the specification gives it.

use tollgate_openflow::message::HEADER_BYTES;
use tollgate_openflow::{ErrorCode as E, Message};

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    (0..digits.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap())
        .collect()
}

/// A message with a true length around a body.
fn framed(message_type: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(HEADER_BYTES + body.len()).unwrap().to_be_bytes();
    let mut bytes = vec![4, message_type, length[0], length[1], 0, 0, 0, 9];
    bytes.extend(body);
    bytes
}

/// A flow-mod that adds to table 0, with these match fields and instructions.
fn flow_mod(oxm: &str, instructions: &str) -> Vec<u8> {
    let oxm = hex(oxm);
    let length = u16::try_from(4 + oxm.len()).unwrap();
    let mut body = hex(
        "0000000000000000 0000000000000000 00 00 0000 0000 8000 ffffffff ffffffff ffffffff 0000 0000
         0001",
    );
    body.extend(length.to_be_bytes());
    body.extend(&oxm);
    body.resize(body.len() + usize::from(length).wrapping_neg() % 8, 0);
    body.extend(hex(instructions));
    framed(14, &body)
}

/// A flow-mod with one apply-actions instruction around these actions.
fn with_actions(oxm: &str, actions: &str) -> Vec<u8> {
    let length = 8 + hex(actions).len();
    flow_mod(oxm, &format!("0004 {length:04x} 00000000 {actions}"))
}

fn refusal(bytes: &[u8]) -> Option<E> {
    Message::decode(bytes).err().map(|error| error.code)
}

const ETH_TYPE_IP: &str = "80000a02 0800";
const OUTPUT_1: &str = "0000 0010 00000001 0000 000000000000";

#[test]
fn the_examples_are_valid_before_they_are_damaged() {
    assert_eq!(refusal(&flow_mod("", "")), None);
    assert_eq!(refusal(&with_actions(ETH_TYPE_IP, OUTPUT_1)), None);
}

#[test]
fn a_header_that_lies_about_the_length_is_refused() {
    let whole = flow_mod("", "");
    for length in [0, 7, 8, whole.len() - 1, whole.len() + 1, 65535] {
        let mut bytes = whole.clone();
        bytes[2..4].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
        assert_eq!(refusal(&bytes), Some(E::OFPBRC_BAD_LEN), "length {length}");
    }
    assert_eq!(refusal(&[]), Some(E::OFPBRC_BAD_LEN));
    assert_eq!(refusal(&whole[..7]), Some(E::OFPBRC_BAD_LEN));
}

#[test]
fn a_truncated_body_is_refused_wherever_it_is_cut() {
    let whole = with_actions(ETH_TYPE_IP, OUTPUT_1);
    for cut in HEADER_BYTES..whole.len() {
        let bytes = framed(14, &whole[HEADER_BYTES..cut]);
        // (Cut behind the match, it is a shorter but whole flow-mod.)
        let whole_match = cut == whole.len() - 24;
        assert_eq!(refusal(&bytes).is_some(), !whole_match, "cut at {cut}");
    }
}

#[test]
fn another_version_is_refused_except_in_a_hello() {
    let mut bytes = framed(20, &[]);
    bytes[0] = 1;
    assert_eq!(refusal(&bytes), Some(E::OFPBRC_BAD_VERSION));
    bytes[1] = 0;
    assert_eq!(refusal(&bytes), None);
}

#[test]
fn an_unknown_type_decodes_and_says_how_to_refuse_it() {
    for (message_type, code) in
        [(4, E::OFPBRC_BAD_EXPERIMENTER), (17, E::OFPBRC_BAD_TYPE), (99, E::OFPBRC_BAD_TYPE)]
    {
        let (_, message) = Message::decode(&framed(message_type, &[1, 2, 3])).unwrap();
        assert_eq!(message.refusal(), Some(code), "type {message_type}");
    }
    // Of known experimenters the type is unknown.
    for body in ["00002320 00000010 00000002", "4f4e4600 00000001"] {
        let (_, message) = Message::decode(&framed(4, &hex(body))).unwrap();
        assert_eq!(message.refusal(), Some(E::OFPBRC_BAD_EXP_TYPE), "{body}");
    }
    let (_, barrier) = Message::decode(&framed(20, &[])).unwrap();
    assert_eq!(barrier.refusal(), None);
}

#[test]
fn fixed_messages_with_a_surplus_are_refused() {
    for message_type in [5, 7, 20, 21] {
        let bytes = framed(message_type, &[0]);
        assert_eq!(refusal(&bytes), Some(E::OFPBRC_BAD_LEN), "type {message_type}");
    }
}

#[test]
fn a_bad_match_is_refused_with_its_reason() {
    for (oxm, code) in [
        // Twice the same field; the second in another form.
        ("80000004 00000001 80000004 00000002", E::OFPBMC_DUP_FIELD),
        ("80000606 000000000001 8000070c 000000000001 ffffffffffff", E::OFPBMC_DUP_FIELD),
        // ipv4_src without IPv4; tcp_dst under UDP; ip_proto before eth_type; vlan_pcp untagged.
        ("80001604 0a000001", E::OFPBMC_BAD_PREREQ),
        ("80000a02 86dd 80001604 0a000001", E::OFPBMC_BAD_PREREQ),
        ("80000a02 0800 80001401 11 80001c02 0050", E::OFPBMC_BAD_PREREQ),
        ("80001401 06 80000a02 0800", E::OFPBMC_BAD_PREREQ),
        ("80000c02 0000 80000e01 03", E::OFPBMC_BAD_PREREQ),
        ("80000a02 0800 80001401 06 80002601 08", E::OFPBMC_BAD_PREREQ),
        // Unknown class, field, experimenter.
        ("12340004 00000001", E::OFPBMC_BAD_FIELD),
        ("8000fe04 00000001", E::OFPBMC_BAD_FIELD),
        ("ffff5406 11223344 0002", E::OFPBMC_BAD_FIELD),
        // Lengths: shorter or longer than the field, past the match, a mask without mask bit.
        ("80000003 000001", E::OFPBMC_BAD_LEN),
        ("80000005 0000000001", E::OFPBMC_BAD_LEN),
        ("80000044 00000001", E::OFPBMC_BAD_LEN),
        ("800000", E::OFPBMC_BAD_LEN),
        ("80000608 000000000001 ffff", E::OFPBMC_BAD_LEN),
        // Value outside the mask; mask where none may be; value and mask wider than the field.
        ("80000a02 0800 80001708 0a000001 ffffff00", E::OFPBMC_BAD_WILDCARDS),
        ("80000b04 0800 ff00", E::OFPBMC_BAD_MASK),
        ("80000a02 0800 80001001 40", E::OFPBMC_BAD_VALUE),
        ("80000c02 2001", E::OFPBMC_BAD_VALUE),
        // An ARP opcode beyond 255; a port of fragments that have none, however it is ordered.
        ("80000a02 0806 80002a02 0100", E::OFPBMC_BAD_VALUE),
        ("80000a02 0800 00013401 03 80001401 06 80001a02 0050", E::OFPBMC_BAD_PREREQ),
        ("80000a02 0800 80001401 06 80001a02 0050 00013401 03", E::OFPBMC_BAD_PREREQ),
        (
            "80000a02 86dd 80001401 3a 80003a01 87 80003c01 01 80004006 000000000001",
            E::OFPBMC_BAD_PREREQ,
        ),
        ("80000d04 1001 3001", E::OFPBMC_BAD_MASK),
        // A packet that is not Ethernet.
        ("80005804 00010800", E::OFPBMC_BAD_VALUE),
        ("80005805 00000000 00", E::OFPBMC_BAD_LEN),
    ] {
        assert_eq!(refusal(&flow_mod(oxm, "")), Some(code), "{oxm}");
    }
}

#[test]
fn a_match_of_another_type_or_with_a_lying_length_is_refused() {
    let whole = flow_mod(ETH_TYPE_IP, "");
    let mut standard = whole.clone();
    standard[49] = 0;
    assert_eq!(refusal(&standard), Some(E::OFPBMC_BAD_TYPE));
    for length in [0, 3, 200] {
        let mut lying = whole.clone();
        lying[51] = length;
        assert_eq!(refusal(&lying), Some(E::OFPBRC_BAD_LEN), "length {length}");
    }
}

#[test]
fn the_packet_type_that_ovs_ofctl_adds_is_accepted() {
    let (_, message) = Message::decode(&flow_mod("80005804 00000000", "")).unwrap();
    let Message::FlowMod(flow) = message else { panic!("{message:?}") };
    assert!(flow.matcher.is_any());
}

#[test]
fn a_bad_action_is_refused_with_its_reason() {
    for (oxm, actions, code) in [
        ("", "0000 0008 00000001", E::OFPBAC_BAD_LEN),
        ("", "0000 0018 00000001 0000 000000000000 0000000000000000", E::OFPBAC_BAD_LEN),
        ("", "0000 000c 00000001 00000000 00000000", E::OFPBAC_BAD_LEN),
        ("", "0000 0000 00000001", E::OFPBAC_BAD_LEN),
        ("", "0000 0100 00000001 0000 000000000000", E::OFPBAC_BAD_LEN),
        ("", "0000 0010 00000000 0000 000000000000", E::OFPBAC_BAD_OUT_PORT),
        ("", "0000 0010 ffffffff 0000 000000000000", E::OFPBAC_BAD_OUT_PORT),
        ("", "0000 0010 ffffff50 0000 000000000000", E::OFPBAC_BAD_OUT_PORT),
        ("", "000b 0008 00000000", E::OFPBAC_BAD_TYPE),
        ("", "ffff 0010 00002321 000e fff8 01000000", E::OFPBAC_BAD_EXPERIMENTER),
        ("", "ffff 0008 00002320", E::OFPBAC_BAD_LEN),
        ("", "0011 0008 9100 0000", E::OFPBAC_BAD_ARGUMENT),
        // pop_vlan of an untagged packet, dec_ttl and set ipv4_src of what is no IP.
        ("", "0012 0008 00000000", E::OFPBAC_MATCH_INCONSISTENT),
        ("", "0018 0008 00000000", E::OFPBAC_MATCH_INCONSISTENT),
        ("", "0019 0010 80001604 0a000001 00000000", E::OFPBAC_MATCH_INCONSISTENT),
        // A second pop of a single tag.
        ("80000c02 100a", "0012 0008 00000000 0012 0008 00000000", E::OFPBAC_MATCH_INCONSISTENT),
        // set_field: unknown field, one that cannot be set, a mask, no present bit, lengths.
        ("", "0019 0010 8000fe04 0a000001 00000000", E::OFPBAC_BAD_SET_TYPE),
        ("", "0019 0010 80000a02 0800 000000000000", E::OFPBAC_BAD_SET_TYPE),
        // The ingress port is set in 16 bits (NXM_OF_IN_PORT).
        ("", "0019 0010 80000004 01020304 00000000", E::OFPBAC_BAD_SET_TYPE),
        ("", "0019 0018 8000070c 000000000001 00000000000f 00000000", E::OFPBAC_BAD_SET_TYPE),
        ("80000c02 100a", "0019 0010 80000c02 000a 000000000000", E::OFPBAC_BAD_SET_ARGUMENT),
        ("", "0019 0010 80000c02 f00a 000000000000", E::OFPBAC_BAD_SET_ARGUMENT),
        ("80000a02 0806", "0019 0010 80002a02 0100 000000000000", E::OFPBAC_BAD_SET_ARGUMENT),
        ("", "0019 0010 80000c01 10 00000000000000", E::OFPBAC_BAD_SET_LEN),
        ("", "0019 0010 8000060f 000000000001 0000", E::OFPBAC_BAD_LEN),
        ("", "0019 0018 80000c02 100a 000000000000 0000000000000000", E::OFPBAC_BAD_LEN),
    ] {
        assert_eq!(refusal(&with_actions(oxm, actions)), Some(code), "{oxm} / {actions}");
    }
}

#[test]
fn a_bad_action_of_nicira_s_is_refused_with_its_reason() {
    // The first of each kind is right.
    for (actions, code) in [
        // learn; clone.
        ("ffff 0010 00002320 0010 000000000000", Some(E::OFPBAC_BAD_EXP_TYPE)),
        ("ffff 0010 00002320 002a 000000000000", Some(E::OFPBAC_BAD_EXP_TYPE)),
        // load: bits past the field, a value that does not fit, read-only and unknown fields.
        ("ffff 0018 00002320 0007 0007 00010004 00000000000000ff", None),
        ("ffff 0018 00002320 0007 0607 00010004 00000000000000ff", None),
        ("ffff 0018 00002320 0007 0647 00010004 00000000000000ff", Some(E::OFPBAC_BAD_SET_LEN)),
        ("ffff 0018 00002320 0007 0007 00010004 0000000000000100", Some(E::OFPBAC_BAD_ARGUMENT)),
        (
            "ffff 0018 00002320 0007 000f 00000602 0000000000000800",
            Some(E::OFPBAC_BAD_SET_ARGUMENT),
        ),
        ("ffff 0018 00002320 0007 0007 0001fe04 00000000000000ff", Some(E::OFPBAC_BAD_SET_TYPE)),
        ("ffff 0018 00002320 0007 0007 00010005 00000000000000ff", Some(E::OFPBAC_BAD_SET_TYPE)),
        ("ffff 0010 00002320 0007 0007 00010004", Some(E::OFPBAC_BAD_LEN)),
        // load into ip_dst of what is no IP.
        (
            "ffff 0018 00002320 0007 0007 00001004 00000000000000ff",
            Some(E::OFPBAC_MATCH_INCONSISTENT),
        ),
        // move: no bits, bits past either end, onto a read-only field, from what is not there.
        ("ffff 0018 00002320 0006 0010 0000 0000 00000406 00010204", None),
        ("ffff 0018 00002320 0006 0000 0000 0000 00000406 00010204", Some(E::OFPBAC_BAD_SET_LEN)),
        ("ffff 0018 00002320 0006 0010 0021 0000 00000406 00010204", Some(E::OFPBAC_BAD_SET_LEN)),
        ("ffff 0018 00002320 0006 0010 0000 0011 00000406 00010204", Some(E::OFPBAC_BAD_SET_LEN)),
        ("ffff 0018 00002320 0006 0110 0000 0000 00000406 00010204", Some(E::OFPBAC_BAD_SET_LEN)),
        (
            "ffff 0018 00002320 0006 0010 0000 0000 00010204 00000602",
            Some(E::OFPBAC_BAD_SET_ARGUMENT),
        ),
        (
            "ffff 0018 00002320 0006 0010 0000 0000 00000e04 00010204",
            Some(E::OFPBAC_MATCH_INCONSISTENT),
        ),
        // A move of the control word that spans priority and id.
        ("ffff 0018 00002320 0006 000c 0000 0000 00000802 00010204", None),
        ("ffff 0018 00002320 0006 0010 0000 0000 00000802 00010204", Some(E::OFPBAC_BAD_SET_LEN)),
        // load with a mask: of a field that has none, a value outside it, nothing.
        ("ffff 0018 00002320 0021 00010104 00000005 000000000000", Some(E::OFPBAC_BAD_SET_LEN)),
        ("ffff 0018 00002320 0021 00010108 00000005 000000ff 0000", None),
        (
            "ffff 0018 00002320 0021 00010108 00000500 000000ff 0000",
            Some(E::OFPBAC_BAD_SET_ARGUMENT),
        ),
        ("ffff 0018 00002320 0021 00010108 00000000 00000000 0000", Some(E::OFPBAC_BAD_SET_TYPE)),
        // resubmit to here by the same port, for ever.
        ("ffff 0010 00002320 000e fff8 01000000", None),
        ("ffff 0010 00002320 0001 0002 00000000", None),
        ("ffff 0010 00002320 000e fff8 ff000000", Some(E::OFPBAC_BAD_ARGUMENT)),
        ("ffff 0010 00002320 0001 fff8 00000000", Some(E::OFPBAC_BAD_ARGUMENT)),
        // controller: a reason that there is not; too long.
        ("ffff 0010 00002320 0014 0064 0005 00 00", None),
        ("ffff 0010 00002320 0014 0064 0005 03 00", Some(E::OFPBAC_BAD_ARGUMENT)),
        ("ffff 0018 00002320 0014 0064 0005 00 00 0000000000000000", Some(E::OFPBAC_BAD_LEN)),
        ("ffff 0010 00002320 0008 010203000000", None),
    ] {
        assert_eq!(refusal(&with_actions("", actions)), code, "{actions}");
    }
}

#[test]
fn notes_are_bounded_together() {
    let note =
        |length: usize| format!("ffff {length:04x} 00002320 0008 {}", "11".repeat(length - 10));
    assert_eq!(refusal(&with_actions("", &note(4096))), None);
    assert_eq!(refusal(&with_actions("", &note(8192))), Some(E::OFPBAC_TOO_MANY));
    assert_eq!(refusal(&with_actions("", &note(2104).repeat(2))), Some(E::OFPBAC_TOO_MANY));
}

#[test]
fn a_bad_instruction_is_refused_with_its_reason() {
    for (instructions, code) in [
        ("0001 0004", E::OFPBIC_BAD_LEN),
        ("0001 0008 01", E::OFPBIC_BAD_LEN),
        ("0001 0010 01000000 0000000000000000", E::OFPBIC_BAD_LEN),
        ("0001 0003 01000000", E::OFPBIC_BAD_LEN),
        ("0002 0010 00000000 0000000000000001", E::OFPBIC_BAD_LEN),
        ("0005 0010 00000000 0000000000000000", E::OFPBIC_BAD_LEN),
        ("0009 0008 00000000", E::OFPBIC_UNKNOWN_INST),
        ("ffff 0008 00000001", E::OFPBIC_BAD_EXPERIMENTER),
        ("0001 0008 01000000 0001 0008 02000000", E::OFPBIC_DUP_INST),
        ("0001 0008 00000000", E::OFPBIC_BAD_TABLE_ID),
        ("0001 0008 ff000000", E::OFPBIC_BAD_TABLE_ID),
    ] {
        assert_eq!(refusal(&flow_mod("", instructions)), Some(code), "{instructions}");
    }
}

#[test]
fn more_actions_than_the_limit_are_refused() {
    let limit = tollgate_openflow::limits::ACTIONS_MAX;
    assert_eq!(refusal(&with_actions("", &OUTPUT_1.repeat(limit))), None);
    assert_eq!(refusal(&with_actions("", &OUTPUT_1.repeat(limit + 1))), Some(E::OFPBAC_TOO_MANY));
    // Half in each of two lists is the limit for both together.
    let list =
        |kind: &str, n: usize| format!("{kind} {:04x} 00000000 {}", 8 + 16 * n, OUTPUT_1.repeat(n));
    let both = list("0004", limit / 2) + &list("0003", limit / 2 + 1);
    assert_eq!(refusal(&flow_mod("", &both)), Some(E::OFPBAC_TOO_MANY));
}

#[test]
fn a_bad_flow_mod_is_refused_with_its_reason() {
    let mut command = flow_mod("", "");
    command[25] = 5;
    assert_eq!(refusal(&command), Some(E::OFPFMFC_BAD_COMMAND));
    let mut flags = flow_mod("", "");
    flags[45] = 0x20;
    assert_eq!(refusal(&flags), Some(E::OFPFMFC_BAD_FLAGS));
}

#[test]
fn a_bad_multipart_request_is_refused_with_its_reason() {
    for (body, code) in [
        ("0000 0001 00000000", E::OFPBRC_MULTIPART_BUFFER_OVERFLOW),
        ("000e 0000 00000000", E::OFPBRC_BAD_MULTIPART),
        ("0005 0000 00000000 00000001", E::OFPBRC_BAD_LEN),
        ("000a 0000 00000000 00000001", E::OFPBRC_BAD_LEN),
        ("ffff 0000 00000000", E::OFPBRC_BAD_EXPERIMENTER),
        ("0000 0000", E::OFPBRC_BAD_LEN),
        ("0000 0000 00000000 00", E::OFPBRC_BAD_LEN),
        ("0004 0000 00000000 00000001", E::OFPBRC_BAD_LEN),
        ("000c 0000 00000000 0001", E::OFPTFFC_BAD_LEN),
        ("000c 0000 00000000 0010 00 00", E::OFPBRC_BAD_LEN),
    ] {
        assert_eq!(refusal(&framed(18, &hex(body))), Some(code), "{body}");
    }
}

#[test]
fn a_bad_meter_mod_is_refused_with_its_reason() {
    let band = "0001 0010 00000064 0000000a 00000000";
    for (body, code) in [
        (format!("0000 000e 00000001 {band}"), None),
        (format!("0000 000e 00000001 {}", band.repeat(8)), None),
        (format!("0000 000e 00000001 {}", band.repeat(9)), Some(E::OFPMMFC_OUT_OF_BANDS)),
        (format!("0003 000e 00000001 {band}"), Some(E::OFPMMFC_BAD_COMMAND)),
        (format!("0000 0010 00000001 {band}"), Some(E::OFPMMFC_BAD_FLAGS)),
        (
            "0000 000e 00000001 0003 0010 00000064 0000000a 00000000".to_owned(),
            Some(E::OFPMMFC_BAD_BAND),
        ),
        ("0000 000e 00000001 0001 0010 00000064".to_owned(), Some(E::OFPBRC_BAD_LEN)),
        (
            "0000 000e 00000001 0001 0018 00000064 0000000a 0000000000000000 00000000".to_owned(),
            Some(E::OFPBRC_BAD_LEN),
        ),
    ] {
        assert_eq!(refusal(&framed(29, &hex(&body))), code, "{body}");
    }
}

#[test]
fn a_bad_bundle_message_is_refused_with_its_reason() {
    let control = "4f4e4600 000008fc 00000001";
    let add = "4f4e4600 000008fd 00000001 0000";
    for (body, code) in [
        (format!("{control} 0000 0003"), None),
        (format!("{control} 0008 0003"), Some(E::OFPBFC_BAD_TYPE)),
        (format!("{control} 0000 0004"), Some(E::OFPBFC_BAD_FLAGS)),
        (format!("{control} 0000"), Some(E::OFPBRC_BAD_LEN)),
        (format!("{add} 0003 0410 0028 00000009 {}", "00".repeat(32)), None),
        (format!("{add} 0004 0410 0028 00000009 {}", "00".repeat(32)), Some(E::OFPBFC_BAD_FLAGS)),
        (format!("{add} 0003 0410 0028 00000008 {}", "00".repeat(32)), Some(E::OFPBFC_MSG_BAD_XID)),
        (format!("{add} 0003 0414 0008 00000009"), Some(E::OFPBFC_MSG_UNSUP)),
        (format!("{add} 0003 0404 0018 00000009 {control} 0000 0003"), Some(E::OFPBFC_MSG_UNSUP)),
        (format!("{add} 0003 0410 0030 00000009 {}", "00".repeat(32)), Some(E::OFPBRC_BAD_LEN)),
        (
            format!("{add} 0003 040f 0010 00000009 0007 00 00 00000001"),
            Some(E::OFPGMFC_BAD_COMMAND),
        ),
    ] {
        assert_eq!(refusal(&framed(4, &hex(&body))), code, "{body}");
    }
}

#[test]
fn an_error_about_a_bundle_begins_with_the_experimenter() {
    let Message::Error(error) = Message::error(E::OFPBFC_BAD_ID, &[1, 2]) else { panic!() };
    assert_eq!(error.data, hex("4f4e4600 0102"));
}

#[test]
fn an_error_carries_the_start_of_what_it_refuses() {
    let refused = vec![7; 1000];
    let Message::Error(error) = Message::error(E::OFPBRC_BAD_TYPE, &refused) else { panic!() };
    assert!(error.data.len() >= 64, "OF 1.3.5 §7.4.4 asks for 64 bytes at least");
    assert!(refused.starts_with(&error.data));
    let Message::Error(error) = Message::error(E::OFPBRC_BAD_TYPE, &[1, 2]) else { panic!() };
    assert_eq!(error.data, [1, 2]);
}

#[test]
fn a_hello_with_or_without_bitmap_says_whether_it_speaks_1_3() {
    let hello = |version, body: &str| {
        let mut bytes = framed(0, &hex(body));
        bytes[0] = version;
        match Message::decode(&bytes) {
            Ok((header, Message::Hello(hello))) => hello.speaks_1_3(&header),
            other => panic!("{other:?}"),
        }
    };
    assert!(hello(4, ""));
    assert!(hello(6, ""));
    assert!(!hello(1, ""));
    assert!(hello(6, "0001 0008 00000052"));
    assert!(!hello(6, "0001 0008 00000042"));
    // A bitmap of two words, behind an unknown element that is padded.
    assert!(hello(1, "0007 0005 00 000000 0001 000c 00000010 00000000"));
    // What a 1.0 switch may add is ignored.
    assert!(!hello(1, "ffff ff"));
}
