//! Accurate ECN (RFC 9768): the handshake, the counters in segments, the answer to marks. The tables are held in `accecn/tests.rs`.

use super::super::accecn::{AccEcnInfo, AccEcnOption, IpEcn, OptionSeen, SynEcn};
use super::super::ecn::EcnMode;
use super::super::events::Transmit;
use super::super::sack::SackBlock;
use super::super::segment::{Flags, Header, Timestamps};
use super::super::settings::{MtuProbing, Settings};
use super::super::wire;
use super::script::{ACK, IRS, ISS, MSS, SYN, SYN_ACK, Script, WND, ms, plain, secs};
use crate::seq::SeqNum;

fn accurate() -> Settings {
    Settings { ecn: EcnMode::Accurate, sack: true, ..plain() }
}

/// The option as the peer sends it: bytes of ECT(0), marked bytes, bytes of ECT(1).
fn option([ect_0, ce, ect_1]: [u32; 3]) -> Option<AccEcnOption> {
    let bytes: Vec<u8> =
        [ect_0 + 1, ce, ect_1 + 1].iter().flat_map(|value| value.to_be_bytes()[1..].to_vec()).collect();
    Some(AccEcnOption::parse(AccEcnOption::KIND_0, &bytes))
}

/// The peer's segment, its flags counting from `ace`.
fn from_peer(t: &Script, flags: Flags, ace: u8, counters: Option<[u32; 3]>) -> Header {
    let mut header = t.seg(flags.with(Flags::from_ace(ace)));
    header.options.accecn = counters.and_then(option);
    header
}

/// A server's child whose client sends options or not.
fn server(has_option: bool) -> Script {
    server_with(&accurate(), has_option)
}

fn server_with(settings: &Settings, has_option: bool) -> Script {
    let mut t = Script::established(settings);
    let first = from_peer(&t, ACK.with(Flags::ECT), 0b010, has_option.then_some([0; 3]));
    // The script's own first acknowledgment has said nothing about the SYN-ACK.
    t.pcb.rare.set_accecn(Some(super::super::accecn::AccEcn::server(Default::default())));
    let _ = t.input(first, &[]);
    t.output();
    assert_eq!(info(&t).fail.bits(), 0);
    t
}

fn info(t: &Script) -> AccEcnInfo {
    t.pcb.accurate_ecn().unwrap()
}

fn ace_of(segment: &Transmit) -> u8 {
    segment.header().flags.ace()
}

#[test]
fn a_connect_asks_twice_and_then_without() {
    let mut t = Script::connect(&accurate());
    let asked = |sent: &Transmit| sent.header().flags.without(SYN);
    assert_eq!(t.output().iter().map(asked).collect::<Vec<_>>(), [Flags::ACE]);
    let again: Vec<_> = t.wait(secs(4)).iter().map(|(_, sent)| asked(sent)).collect();
    assert_eq!(again, [Flags::ACE, Flags::NONE]);
    // The server's flags say that it has seen one of the first.
    let _ = t.input(t.raw(IRS, ISS + 1, SYN_ACK.with(Flags::from_ace(0b010))), &[]);
    assert_eq!(info(&t).fail.bits(), 0);
}

#[test]
fn a_syn_ack_decides_between_accurate_classic_and_no_ecn() {
    for (ace, ecn, is_accurate) in [
        (0b000, false, false),
        (0b001, true, false),
        (0b010, true, true),
        (0b011, true, true),
        (0b100, true, true),
        (0b101, true, false),
        (0b110, true, true),
        (0b111, false, false),
    ] {
        let mut t = Script::connect(&accurate());
        t.output();
        let _ = t.input(t.raw(IRS, ISS + 1, SYN_ACK.with(Flags::from_ace(ace))), &[]);
        assert_eq!((t.pcb.ecn(), t.pcb.accurate_ecn().is_some()), (ecn, is_accurate), "{ace:03b}");
        t.output();
        t.snd = 100;
        let flags = t.output()[0].header().flags.without(Flags::PSH);
        let expected = match (ecn, is_accurate) {
            (false, _) => ACK,
            (true, false) => ACK.with(Flags::ECT),
            // Its SYN was not ECN-capable: a server that saw another field shows that the path changes it.
            (true, true) if ace == 0b010 => ACK.with(Flags::from_ace(5)).with(Flags::ECT),
            (true, true) => ACK.with(Flags::from_ace(5)),
        };
        assert_eq!(flags, expected, "{ace:03b}");
    }
    // Accurate ECN that was not asked for is not agreed to.
    let mut t = Script::connect(&Settings { ecn: EcnMode::On, ..plain() });
    t.output();
    let _ = t.input(t.raw(IRS, ISS + 1, SYN_ACK.with(Flags::from_ace(0b010))), &[]);
    assert!(!t.pcb.ecn());
}

#[test]
fn a_client_tells_how_the_syn_ack_came_and_then_counts() {
    for (came_with, reflected, count) in
        [(Flags::NONE, 0b010, 5), (Flags::ECT_1, 0b011, 5), (Flags::ECT, 0b100, 5), (Flags::CE, 0b110, 6)]
    {
        let mut t = Script::connect(&accurate());
        t.output();
        let mut syn_ack = t.raw(IRS, ISS + 1, SYN_ACK.with(Flags::from_ace(0b010)).with(came_with));
        syn_ack.options.accecn = option([0; 3]);
        let _ = t.input(syn_ack, &[]);
        let third = t.output();
        assert_eq!((third.len(), ace_of(&third[0])), (1, reflected));
        t.snd = 100;
        let text = t.output();
        assert_eq!((ace_of(&text[0]), text[0].header().options.accecn), (count, Some(AccEcnOption::first())));
    }
}

#[test]
fn a_simultaneous_open_uses_none() {
    for ace in 0..8 {
        let mut t = Script::connect(&accurate());
        t.output();
        let _ = t.input(t.raw(IRS, 0, SYN.with(Flags::from_ace(ace))), &[]);
        assert_eq!(t.output()[0].header().flags, SYN_ACK);
        let _ = t.input(t.raw(IRS + 1, ISS + 1, ACK), &[]);
        assert!(!t.pcb.ecn(), "{ace}");
    }
}

#[test]
fn segments_have_room_for_the_option_once_the_peer_has_sent_it() {
    for has_option in [false, true] {
        let mut t = server(has_option);
        let mss = (MSS - if has_option { 12 } else { 0 }) as u16;
        assert_eq!((t.pcb.mss(), info(&t).option_seen != OptionSeen::No), (mss, has_option));
        t.snd = 3 * u32::from(mss);
        for sent in t.output() {
            let header = sent.header();
            assert_eq!((sent.len, header.options.accecn.is_some()), (u32::from(mss), has_option));
            assert_eq!(header.flags.without(Flags::PSH), ACK.with(Flags::from_ace(5)).with(Flags::ECT));
        }
        assert_eq!(t.pcb.path_mtu(), MSS + 40);
    }
}

#[test]
fn text_is_counted_by_the_field_it_came_with_and_a_mark_is_told_at_once() {
    let mut t = server(true);
    // Three without a mark, so that acknowledgments wait; the flags of the last are zero.
    for (came_with, ace) in
        [(Flags::ECT, 5), (Flags::CE, 6), (Flags::CE, 7), (Flags::CE, 0), (Flags::ECT_1, 0)]
    {
        let segment = from_peer(&t, ACK.with(came_with), 5, None);
        let _ = t.input(segment, &[1; 100]);
        let sent = t.output();
        assert_eq!(sent.iter().map(ace_of).collect::<Vec<_>>(), [ace], "{came_with:?}");
    }
    let info = info(&t);
    assert_eq!(
        (info.received_ce, info.received.ce, info.received.ect_0, info.received.ect_1),
        (3, 300, 100, 100)
    );
}

#[test]
fn the_latest_text_counts_again_if_it_comes_again_and_older_text_does_not() {
    let mut t = server(true);
    for (back, counted) in [(0, 100), (0, 200), (100, 300), (200, 300)] {
        let mut segment = from_peer(&t, ACK.with(Flags::ECT), 5, None);
        segment.seq = segment.seq - back;
        let _ = t.input(segment, &[1; 100]);
        t.output();
        assert_eq!(info(&t).received.ect_0, counted);
    }
}

#[test]
fn marks_reduce_the_window_once_a_round_trip_and_cwr_is_not_sent() {
    let mut t = server(true);
    t.snd = 200_000;
    let first = t.output().len() as u32;
    let (cwnd, mss) = (t.pcb.cwnd(), u32::from(t.pcb.mss()));
    let mut ace = 5_u8;
    for k in 1..=first {
        ace = (ace + 1) & 7;
        let mut ack = from_peer(&t, ACK, ace, Some([0, k * mss, 0]));
        ack.ack = t.pcb.snd_una() + mss;
        let _ = t.input(ack, &[]);
        let sent = t.output();
        assert!(sent.iter().all(|sent| ace_of(sent) == 5), "counters, and no CWR");
    }
    let info = info(&t);
    assert_eq!((info.delivered_ce, info.delivered.ce), (first, first * mss));
    assert_eq!(t.pcb.loss_stats().mark_count, 1);
    assert!(t.pcb.cwnd() < cwnd && t.pcb.cwnd() >= cwnd / 2, "{} of {cwnd}", t.pcb.cwnd());
    // The next round trip is another matter.
    let mut ack = from_peer(&t, ACK, (ace + 1) & 7, Some([0, (first + 1) * mss, 0]));
    ack.ack = t.pcb.snd_una() + mss;
    let _ = t.input(ack, &[]);
    assert_eq!(t.pcb.loss_stats().mark_count, 2);
}

#[test]
fn an_old_acknowledgment_counts_nothing() {
    let mut t = server(true);
    t.snd = 10_000;
    t.output();
    let mss = u32::from(t.pcb.mss());
    for (ack, ace) in [(mss, 5), (mss, 7)] {
        let mut header = from_peer(&t, ACK, ace, Some([ack, 0, 0]));
        header.ack = t.place(0) + ack;
        let _ = t.input(header, &[]);
        assert_eq!((info(&t).delivered_ce, t.pcb.loss_stats().mark_count), (0, 0));
    }
}

#[test]
fn flags_that_a_middlebox_clears_end_marking() {
    let mut t = Script::established(&accurate());
    // The first acknowledgment of `established` has no flags.
    assert_eq!(info(&t).fail.bits(), 2);
    t.snd = 100;
    assert_eq!(t.output()[0].header().flags.without(Flags::PSH), ACK.with(Flags::from_ace(5)));
}

#[test]
fn blocks_of_sack_and_counters_share_the_header() {
    for timestamps in [false, true] {
        let mut t = server_with(&Settings { timestamps, ..accurate() }, true);
        // Holes between segments, each with a mark.
        for k in [1, 3, 5, 7] {
            let mut segment = from_peer(&t, ACK.with(Flags::CE), 5, None);
            segment.seq += k * 100;
            let _ = t.input(segment, &[1; 100]);
            for sent in t.output() {
                let header = sent.header();
                let option = header.options.accecn.expect("a mark is news");
                let blocks = header.options.sack.len();
                assert!(wire::header_len(&header) <= 60 && option.fields().len() >= 2, "{header:?}");
                let room = if timestamps { 2 } else { 3 };
                assert!(blocks == room.min(k as usize / 2 + 1), "{blocks} blocks, {header:?}");
            }
        }
    }
}

#[test]
fn a_server_that_has_taken_text_from_the_syn_reflects_its_field() {
    for (came_with, ace) in
        [(IpEcn::NotEct, 0b010), (IpEcn::Ect1, 0b011), (IpEcn::Ect0, 0b100), (IpEcn::Ce, 0b110)]
    {
        let syn = SynEcn { came_with, is_withdrawn: false };
        let mut t = Script::fast_open(&accurate(), syn);
        let sent = t.output();
        let header = sent[0].header();
        assert_eq!(header.flags, SYN_ACK.with(Flags::from_ace(ace)));
        assert_eq!(header.options.accecn, Some(AccEcnOption::first()));
        let again = t.wait(secs(2));
        let header = again[0].1.header();
        assert_eq!((header.flags, header.options.accecn), (SYN_ACK.with(Flags::from_ace(ace)), None));
    }
}

/// RFC 9768 section 3.2.2.1: text, an end and blocks make the first segment one that counts.
#[test]
fn a_first_segment_that_is_not_bare_does_not_tell_how_the_syn_ack_came() {
    for (text, ends, ace) in [(0, false, 0b010), (10, false, 5), (0, true, 5), (10, true, 5)] {
        let mut t = Script::connect(&accurate());
        t.output();
        if ends {
            t.pcb.shutdown_write();
        }
        let _ = t.input(t.raw(IRS, ISS + 1, SYN_ACK.with(Flags::from_ace(0b010))), &[]);
        t.snd = text;
        assert_eq!(ace_of(&t.output()[0]), ace, "{text} {ends}");
    }
}

/// Of a SYN-ACK that was not ECN-capable the client says that it came with ECT(1).
#[test]
fn only_a_bare_first_segment_shows_that_the_syn_ack_was_changed() {
    let fails = |text: &[u8], flags: Flags, has_block: bool| {
        let mut t = Script::established(&accurate());
        t.pcb.rare.set_accecn(Some(super::super::accecn::AccEcn::server(Default::default())));
        t.snd = 100;
        t.output();
        let mut first = from_peer(&t, flags, 0b011, None);
        first.ack = t.pcb.snd_una();
        if has_block {
            first.options.sack.push(SackBlock { start: first.ack + 10, end: first.ack + 20 });
        }
        let _ = t.input(first, text);
        info(&t).fail.bits() != 0
    };
    assert!(fails(b"", ACK, false));
    assert!(!fails(b"text", ACK, false));
    assert!(!fails(b"", ACK.with(Flags::FIN), false));
    assert!(!fails(b"", ACK, true));
}

/// RFC 9768 section 3.2.2.5: what neither acknowledges more nor is known to be later may be an old segment.
#[test]
fn only_news_are_asked_for_marks() {
    // What it acknowledges of 3,000 bytes, whether it has a block, and the timestamp; TS.Recent is 100.
    for (acked, has_block, val, counts) in [
        (1_000, false, 100, true),
        (0, false, 100, false),
        (0, true, 100, true),
        (0, false, 101, true),
        (-1, true, 100, false),
        (-1, false, 101, false),
    ] {
        let mut t = server_with(&Settings { timestamps: true, ..accurate() }, false);
        t.snd = 3_000;
        t.output();
        let mut header = from_peer(&t, ACK, 6, None);
        header.ack = SeqNum::new(t.pcb.snd_una().raw().wrapping_add_signed(acked));
        header.options.timestamps = Some(Timestamps { val, ecr: 0 });
        if has_block {
            let una = t.pcb.snd_una();
            header.options.sack.push(SackBlock { start: una + 1_000, end: una + 2_000 });
        }
        let _ = t.input(header, &[]);
        assert_eq!(info(&t).delivered_ce, u32::from(counts), "{acked} {has_block} {val}");
    }
    // Without timestamps one of the option's says nothing.
    let mut t = server(false);
    t.snd = 3_000;
    t.output();
    let mut header = from_peer(&t, ACK, 6, None);
    header.ack = t.pcb.snd_una();
    header.options.timestamps = Some(Timestamps { val: 101, ecr: 0 });
    let _ = t.input(header, &[]);
    assert_eq!(info(&t).delivered_ce, 0);
}

#[test]
fn an_acknowledgment_of_ten_packets_may_report_nine_marks() {
    let mut t = server(false);
    t.snd = 10 * MSS;
    assert_eq!(t.output().len(), 10);
    // So that the path is not taken for one that joins acknowledgments.
    for ace in [5, 5] {
        let mut header = from_peer(&t, ACK, ace, None);
        header.ack = t.pcb.snd_una() + MSS / 2;
        let _ = t.input(header, &[]);
    }
    t.snd += MSS;
    t.output();
    let mut header = from_peer(&t, ACK, 6, None);
    header.ack = t.pcb.snd_una() + 10 * MSS;
    let _ = t.input(header, &[]);
    assert_eq!(info(&t).delivered_ce, 9);
}

#[test]
fn a_mark_begins_an_acknowledgment_that_does_not_wait() {
    let mut t = server(true);
    let _ = t.input(from_peer(&t, ACK.with(Flags::ECT), 5, None), &[1; 100]);
    t.output();
    for (came_with, is_owed) in [(Flags::ECT, false), (Flags::CE, true)] {
        t.pcb.acks.quick = 0;
        let _ = t.input(from_peer(&t, ACK.with(came_with), 5, None), &[1; 10]);
        assert_eq!(t.pcb.ack_now, is_owed, "{came_with:?}");
    }
}

/// A block goes for counters with news, where three or more are left.
#[test]
fn blocks_stay_where_there_is_no_news_or_few_of_them() {
    let last = |timestamps: bool, came_with: Flags, holes: u32| {
        let mut t = server_with(&Settings { timestamps, ..accurate() }, true);
        let mut found = (0, false);
        for hole in 1..=holes {
            let mut segment = from_peer(&t, ACK.with(came_with), 5, None);
            segment.seq += hole * 200;
            let _ = t.input(segment, &[1; 100]);
            for sent in t.output() {
                let options = sent.header().options;
                found =
                    (options.sack.len(), options.accecn.is_some_and(|option| !option.fields().is_empty()));
            }
        }
        found
    };
    assert_eq!(last(false, Flags::NONE, 4), (4, false));
    assert_eq!(last(false, Flags::CE, 4), (3, true));
    // Counters up to ECT(0)'s have no room beside timestamps and two blocks.
    assert_eq!(last(true, Flags::ECT, 2), (2, false));
}

/// Settings of IPv6 on a link of 1,500 bytes.
fn over_ipv6() -> Settings {
    Settings { headers_len: 60, mtu_min: 1280, mss: 1440, timestamps: true, ..accurate() }
}

/// Bytes of the IP packet with a segment.
fn packet_len(segment: &Transmit) -> u32 {
    40 + wire::header_len(&segment.header()) as u32 + segment.len
}

#[test]
fn a_search_for_the_mtu_that_began_before_the_option_stays_within_the_link() {
    let mut t = server_with(&Settings { mtu_probing: MtuProbing::Always, ..over_ipv6() }, true);
    t.snd = 10_000;
    let sent = t.output();
    assert_eq!(sent.iter().map(packet_len).max(), Some(1500));
    let probe = sent.iter().find(|segment| segment.is_mtu_probe).unwrap();
    let (start, len) = (probe.header().seq, probe.len);
    assert!(!t.pcb.on_packet_too_big(start, 1280, t.now), "the size in use is the least");
    // Everything else arrives, and the probe is sent again in parts.
    let end = t.pcb.snd_max();
    let mut report = t.ack_of(start.since(SeqNum::new(ISS + 1)), WND);
    report.options.sack = [SackBlock { start: start + len, end }].into_iter().collect();
    let _ = t.input(report, &[]);
    let again = t.wait(ms(100));
    assert!(again.iter().any(|(_, segment)| segment.header().seq == start));
    assert!(again.iter().all(|(_, segment)| packet_len(segment) <= 1280));
}

/// A peer without the option, or a path that removes it, does not change the sizes.
#[test]
fn a_search_for_the_mtu_ends_where_the_option_never_comes() {
    let mut t = server_with(&Settings { mtu_probing: MtuProbing::Always, ..over_ipv6() }, false);
    t.snd = 10_000;
    let mut sent = t.output();
    assert_eq!(sent.iter().filter(|segment| segment.is_mtu_probe).count(), 1);
    for acked in [1, t.pcb.snd_max().since(t.pcb.snd_una()) - 1] {
        t.now = t.now + ms(10);
        let _ = t.input(t.ack_of(acked, WND), &[]);
        sent.extend(t.output());
    }
    assert_eq!(t.pcb.path_mtu(), 1500);
    assert_eq!(sent.iter().filter(|segment| segment.is_mtu_probe).count(), 1);
}

#[test]
fn the_largest_size_is_tried_again_with_the_option() {
    let mut t = server_with(&Settings { path_mtu: 1400, ..over_ipv6() }, true);
    assert_eq!(t.pcb.path_mtu(), 1400);
    t.wait(secs(601));
    t.snd = 10_000;
    assert_eq!(t.output().iter().map(packet_len).max(), Some(1500));
}
