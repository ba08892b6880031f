//! Fast Open (RFC 7413) on one pcb: text on the SYN, how much of it is accepted, and what is retransmitted.

use super::super::accepted::{Accepted, SynAcks};
use super::super::ecn::EcnMode;
use super::super::events::Events;
use super::super::fast_open::{Cookie, FastOpenFail, FastOpenSyn, SynText};
use super::super::info::CaState;
use super::super::pcb::Pcb;
use super::super::segment::{Flags, Header, Options, Timestamps};
use super::super::settings::Settings;
use super::super::state::State;
use super::super::unreachable::Unreachable;
use super::script::{ACK, FIN, IRS, ISS, MSS, RST, SYN, SYN_ACK, Script, WND, ms, plain, secs};
use crate::seq::SeqNum;

fn cookie() -> Cookie {
    Cookie::new(b"8 bytes.").unwrap()
}

fn client(cookie: Option<Cookie>) -> Script {
    let fast_open = Some(FastOpenSyn { cookie, mss: 500 });
    Script::connect(&Settings { fast_open, ..plain() })
}

fn syn_ack(t: &Script, ack: u32) -> Header {
    let options = Options { mss: Some(1000), ..Options::default() };
    Header { options, ..t.raw(IRS, ack, SYN_ACK) }
}

/// A handshake without options.
fn accepted() -> Accepted {
    Accepted {
        iss: SeqNum::new(ISS),
        irs: SeqNum::new(IRS),
        peer_mss: 1000,
        snd_wnd: u32::from(WND),
        rcv_wnd: 50_000,
        window_scale: None,
        timestamps: None,
        sack_permitted: false,
        ecn: false,
        accurate_ecn: None,
        rtt: None,
        syn_acks: SynAcks::One,
        rehashes: 0,
    }
}

/// A server's pcb, whose client has sent `text` bytes with its SYN. Its SYN-ACK has been sent.
fn server(text: u32) -> Script {
    let mut t = Script::connect(&plain());
    let accepted = accepted();
    t.pcb = Pcb::accept_fast_open(&plain(), &accepted, text, None, t.now);
    let sent = t.output();
    assert_eq!((sent.len(), sent[0].header().flags, sent[0].header().seq), (1, SYN_ACK, SeqNum::new(ISS)));
    assert_eq!(sent[0].header().ack, SeqNum::new(IRS + 1 + text));
    t
}

#[test]
fn a_cookie_request_carries_no_data_and_a_cookie_as_much_as_fits() {
    let mut asks = client(Some(Cookie::REQUEST));
    asks.snd = 300;
    let sent = asks.output();
    assert_eq!((sent.len(), sent[0].len), (1, 0));
    assert_eq!(sent[0].header().options.fast_open, Some(Cookie::REQUEST));
    // The longest options, forty bytes, leave 460 of 500.
    for (written, with_syn) in [(0, 0), (300, 300), (460, 460), (9000, 460)] {
        let mut t = client(Some(cookie()));
        t.snd = written;
        let sent = t.output();
        assert_eq!((sent.len(), sent[0].len, sent[0].offset), (1, with_syn, 0));
        assert_eq!(sent[0].header().options.fast_open, Some(cookie()));
        assert_eq!(sent[0].header().flags, SYN);
        assert_eq!(t.pcb.snd_max(), SeqNum::new(ISS + 1 + with_syn));
    }
    let mut t = client(Some(cookie()));
    t.pcb = Pcb::connect(
        &Settings { path_mtu: 400, fast_open: Some(FastOpenSyn { cookie: None, mss: 500 }), ..plain() },
        SeqNum::new(ISS),
        50_000,
        t.now,
    );
    assert_eq!(t.pcb.syn_text_max(), 400 - 40 - 40, "the path takes less than the peer");
    let mut bare = client(None);
    bare.snd = 50;
    let sent = bare.output();
    assert_eq!((sent[0].len, sent[0].header().options.fast_open), (50, None));
}

#[test]
fn text_that_the_syn_ack_covers_is_not_sent_again() {
    let mut t = client(Some(cookie()));
    t.snd = 300;
    t.output();
    assert_eq!(t.pcb.syn_text(), SynText::Sent);
    let input = t.input(syn_ack(&t, ISS + 301), b"answer");
    assert_eq!((input.acked, input.deliver.as_slice()), (300, b"answer".as_slice()));
    assert!(input.events.has(Events::CONNECTED));
    let sent = t.output();
    assert_eq!((sent.len(), sent[0].len, sent[0].header().ack), (1, 0, SeqNum::new(IRS + 7)));
    assert_eq!((t.pcb.syn_text(), t.pcb.srtt().is_some()), (SynText::Taken, true));
}

#[test]
fn data_that_the_syn_ack_does_not_cover_is_sent_at_once_and_on_a_path_that_loses_nothing_is_no_retransmission()
 {
    for (taken, outcome) in [(0, SynText::Refused), (100, SynText::Part)] {
        let fast_open = Some(FastOpenSyn { cookie: Some(cookie()), mss: 500 });
        let mut t = Script::connect(&Settings { fast_open, lossless: true, ..plain() });
        t.snd = 300;
        t.output();
        let input = t.input(syn_ack(&t, ISS + 1 + taken), &[]);
        assert_eq!(input.acked, taken);
        let sent = t.output();
        assert_eq!((sent.len(), sent[0].len, sent[0].offset), (1, 300 - taken, 0));
        assert_eq!(sent[0].header().seq, SeqNum::new(ISS + 1 + taken));
        assert_eq!((t.pcb.syn_text(), t.pcb.loss_stats().rexmt_bytes), (outcome, 0));
        assert_eq!(t.pcb.fast_open_fail(), Some(FastOpenFail::TextNotAcked));
        let _ = t.input(t.ack_of(300 - taken, WND), &[]);
        assert_eq!((t.snd, t.pcb.next_deadline()), (0, None));
    }
}

#[test]
fn text_that_a_peer_with_sack_did_not_take_is_sent_again_as_it_was_and_the_window_stays() {
    let fast_open = Some(FastOpenSyn { cookie: Some(cookie()), mss: 500 });
    let mut t = Script::connect(&Settings { fast_open, sack: true, ..plain() });
    t.snd = 5000;
    assert_eq!(t.output()[0].len, 460);
    let mut syn_ack = syn_ack(&t, ISS + 1);
    syn_ack.options.sack_permitted = true;
    let _ = t.input(syn_ack, &[]);
    let sent: Vec<_> = t.output().iter().map(|s| (s.offset, s.len)).collect();
    assert_eq!(sent, [(0, 460), (460, 1000), (1460, 1000), (2460, 1000), (3460, 1000), (4460, 540)]);
    let info = t.pcb.info(t.snd, t.now);
    assert_eq!((info.retrans, info.in_flight, info.rexmt_fast), (460, 5000, 1));
    assert_eq!(info.cwnd, 10_000);
    let _ = t.input(t.ack_of(5000, WND), &[]);
    assert!(t.output().is_empty() && t.snd == 0);
    assert_eq!(t.pcb.syn_text(), SynText::Refused);
}

#[test]
fn a_syn_that_is_lost_is_repeated_without_option_and_text() {
    let mut t = client(Some(cookie()));
    t.snd = 300;
    t.output();
    let sent = t.wait(secs(2));
    assert_eq!(sent.len(), 1);
    let (syn, len) = (sent[0].1.header(), sent[0].1.len);
    assert_eq!((syn.flags, syn.seq, syn.options.fast_open, len), (SYN, SeqNum::new(ISS), None, 0));
    assert_eq!((t.pcb.syn_text(), t.pcb.fast_open_fail()), (SynText::Lost, None));
    // The first one may have arrived after all.
    let input = t.input(syn_ack(&t, ISS + 301), &[]);
    assert_eq!(input.acked, 300);
    assert_eq!((t.pcb.syn_text(), t.pcb.fast_open_fail()), (SynText::Taken, None));
}

#[test]
fn a_client_tells_why_its_text_did_not_go_with_the_syn() {
    let mut t = client(Some(cookie()));
    t.snd = 300;
    t.output();
    let _ = t.wait(secs(2));
    let _ = t.input(syn_ack(&t, ISS + 1), &[]);
    assert_eq!((t.pcb.syn_text(), t.pcb.fast_open_fail()), (SynText::Lost, Some(FastOpenFail::SynRepeated)));
    let mut t = client(Some(Cookie::REQUEST));
    t.output();
    let _ = t.input(syn_ack(&t, ISS + 1), &[]);
    let info = t.pcb.info(0, t.now);
    assert_eq!(info.fast_open_fail, Some(FastOpenFail::CookieUnavailable));
    assert!(!info.syn_text_taken);
    let mut t = client(Some(cookie()));
    t.output();
    let _ = t.input(syn_ack(&t, ISS + 1), &[]);
    let info = t.pcb.info(0, t.now);
    assert_eq!((info.fast_open_fail, info.syn_text_taken), (None, false), "there was no text");
}

#[test]
fn a_syn_ack_that_echoes_no_syn_of_ours_is_reset() {
    let mut t = Script::connect(&Settings { timestamps: true, ..plain() });
    let sent = t.output();
    let val = sent[0].header().options.timestamps.unwrap().val;
    let _ = t.wait(secs(2));
    let last = val.wrapping_add(2000);
    for ecr in [val.wrapping_sub(1), last.wrapping_add(1), 0x8000_0000 ^ val] {
        let timestamps = Some(Timestamps { val: 7, ecr });
        let options = Options { timestamps, ..Options::default() };
        let input = t.input(Header { options, ..t.raw(IRS, ISS + 1, SYN_ACK) }, &[]);
        assert_eq!(input.reply.map(|reset| (reset.seq, reset.flags)), Some((SeqNum::new(ISS + 1), RST)));
        assert_eq!(t.pcb.state(), State::SynSent);
    }
    for ecr in [val, last, 0] {
        let mut t = Script::connect(&Settings { timestamps: true, ..plain() });
        t.output();
        let _ = t.wait(secs(2));
        let options = Options { timestamps: Some(Timestamps { val: 7, ecr }), ..Options::default() };
        let input = t.input(Header { options, ..t.raw(IRS, ISS + 1, SYN_ACK) }, &[]);
        assert!(input.events.has(Events::CONNECTED), "{ecr}");
    }
}

#[test]
fn the_syn_ack_to_text_has_the_whole_window_and_no_update_follows_it() {
    for (text, buffer, window) in [(0, 100_000, 50_000), (1000, 100_000, 50_000), (1000, 50_500, 49_500)] {
        let mut t = Script::connect(&plain());
        let settings = Settings { rcv_buf: buffer, ..plain() };
        t.pcb = Pcb::accept_fast_open(&settings, &accepted(), text, None, t.now);
        let sent = t.output();
        let head = sent[0].header();
        assert_eq!((sent.len(), u32::from(head.window)), (1, window));
        let _ = t.input(t.raw(IRS + 1 + text, ISS + 1, ACK), &[]);
        assert!(t.output().is_empty(), "the rest of the buffer is told with the first text's acknowledgment");
    }
}

#[test]
fn an_acknowledgment_beyond_the_text_is_refused() {
    let mut t = client(Some(cookie()));
    t.snd = 300;
    t.output();
    let input = t.input(syn_ack(&t, ISS + 302), &[]);
    assert_eq!(input.reply.map(|reset| (reset.seq, reset.flags)), Some((SeqNum::new(ISS + 302), RST)));
    assert_eq!(t.pcb.state(), State::SynSent);
}

#[test]
fn a_server_answers_before_its_syn_is_acknowledged() {
    let mut t = server(200);
    assert_eq!(t.write(1500), [1000, 500], "the answer does not wait for the handshake");
    assert!(t.pcb.is_syn_unacked());
    let input = t.input(t.raw(IRS + 201, ISS + 1501, ACK), b"more");
    assert_eq!((input.acked, input.deliver.as_slice()), (1500, b"more".as_slice()));
    assert!(input.events.has(Events::SYN_ACKED) && !t.pcb.is_syn_unacked());
    assert!(t.pcb.srtt().is_some());
}

#[test]
fn a_servers_syn_ack_is_repeated_instead_of_data_and_given_up_like_one() {
    let mut t = server(10);
    t.write(100);
    let sent = t.wait(secs(3));
    let flags: Vec<_> = sent.iter().map(|(_, s)| (s.header().flags, s.len)).collect();
    assert_eq!(flags, [(SYN_ACK, 0), (SYN_ACK, 0)]);
    let _ = t.wait(secs(600));
    assert!(t.events.has(Events::TIMED_OUT));
}

#[test]
fn the_data_of_a_server_is_repaired_once_the_syn_is_acknowledged() {
    let mut t = server(10);
    t.write(100);
    let _ = t.input(t.raw(IRS + 11, ISS + 1, ACK), &[]);
    let sent = t.wait(secs(5));
    assert_eq!((sent[0].1.header().seq, sent[0].1.len), (SeqNum::new(ISS + 1), 100));
}

#[test]
fn a_repeated_syn_of_the_client_repeats_the_syn_ack() {
    let mut t = server(10);
    let syn = Header { ack: SeqNum::new(0), ..t.raw(IRS, 0, SYN) };
    for text in [b"".as_slice(), b"0123456789"] {
        let _ = t.input(syn, text);
        let sent = t.output();
        assert_eq!((sent.len(), sent[0].header().flags), (1, SYN_ACK));
        t.now = t.now + ms(499);
        let _ = t.input(syn, text);
        assert_eq!(t.output().len(), 0, "soon behind an answer there is no other");
        t.now = t.now + ms(1);
    }
    let _ = t.input(Header { seq: SeqNum::new(IRS + 1), ..syn }, &[]);
    let sent = t.output();
    assert_eq!((sent.len(), sent[0].header().flags), (1, ACK), "another SYN is challenged");
}

#[test]
fn a_wrong_acknowledgment_of_a_servers_syn_is_reset() {
    for ack in [ISS, ISS + 2, ISS + (1 << 31)] {
        let mut t = server(10);
        let input = t.input(t.raw(IRS + 11, ack, ACK), &[]);
        assert_eq!(input.reply.map(|reset| (reset.seq, reset.flags)), Some((SeqNum::new(ack), RST)));
        assert!(t.pcb.is_syn_unacked());
    }
    let mut t = server(10);
    let input = t.input(t.raw(IRS + 11, ISS + 1, RST), &[]);
    assert!(input.events.has(Events::RESET));
}

#[test]
fn a_server_may_close_before_its_syn_is_acknowledged() {
    let mut t = server(10);
    t.snd = 50;
    let _ = t.pcb.close(0, t.now);
    let sent = t.output();
    assert_eq!((sent.len(), sent[0].len, sent[0].header().flags.has(Flags::FIN)), (1, 50, true));
    let input = t.input(t.raw(IRS + 11, ISS + 52, FIN), &[]);
    assert!(input.events.has(Events::SYN_ACKED.with(Events::PEER_FIN)));
    assert_eq!(t.pcb.state(), State::TimeWait);
}

#[test]
fn a_server_that_has_shut_its_side_waits_with_the_fin_for_the_acknowledgment_of_its_syn() {
    let mut t = server(10);
    t.snd = 50;
    t.pcb.shutdown_write();
    let sent = t.output();
    assert_eq!((sent.len(), sent[0].len, sent[0].header().flags.has(Flags::FIN)), (1, 50, false));
    assert_eq!((t.pcb.state_name(), t.output().len()), ("SYN-RECEIVED", 0));
    let input = t.input(t.raw(IRS + 11, ISS + 1, ACK), &[]);
    assert!(input.events.has(Events::SYN_ACKED));
    let sent = t.output();
    assert_eq!((sent.len(), sent[0].len, sent[0].header().flags.has(Flags::FIN)), (1, 0, true));
    assert_eq!(t.pcb.state_name(), "FIN-WAIT-1");
}

#[test]
fn text_that_is_out_with_a_syn_ack_that_is_lost_twice_leaves_again_behind_the_handshake() {
    let mut t = server(10);
    t.snd = 2_000;
    let count = t.output().len();
    assert!(count > 1);
    for _ in 0..2 {
        t.now = t.pcb.next_deadline().unwrap();
        let _ = t.pcb.on_timer(t.now);
        let sent = t.output();
        assert_eq!((sent.len(), sent[0].header().flags), (1, SYN_ACK), "and no text");
    }
    let _ = t.input(t.raw(IRS + 11, ISS + 1, ACK), &[]);
    let info = t.pcb.info(t.snd, t.now);
    assert_eq!((info.cwnd, info.ca_state), (info.snd_mss, CaState::Loss));
    let sent = t.output();
    assert_eq!((sent.len(), sent[0].header().seq), (1, SeqNum::new(ISS + 1)));
}

/// As on Linux (`tcp_fastopen_synack_timer`).
#[test]
fn the_timer_of_a_syn_ack_sends_no_new_text() {
    let mut t = server(10);
    t.write(30 * MSS);
    let repeated = t.wait(secs(4));
    assert!(repeated.iter().all(|(_, sent)| sent.header().flags == SYN_ACK), "{repeated:?}");
    assert_eq!(repeated.len(), 2);
    assert_eq!(t.write(1), [MSS]);
}

#[test]
fn cookies_of_an_invalid_length_are_ignored() {
    for len in 0..20 {
        let is_one = len == 0 || (4..=16).contains(&len) && len % 2 == 0;
        assert_eq!(Cookie::new(&vec![7; len]).is_some(), is_one, "{len}");
    }
    assert!(Cookie::REQUEST.is_request() && !cookie().is_request());
}

#[test]
fn a_syn_that_is_too_long_for_the_path_is_repeated_at_once_without_text() {
    for (mtu, announced) in [(840, 800), (100, 552 - 40), (0, 552 - 40)] {
        let mut t = Script::connect(&Settings {
            fast_open: Some(FastOpenSyn { cookie: Some(cookie()), mss: 1460 }),
            mss: 1460,
            ..plain()
        });
        t.snd = 2000;
        assert_eq!(t.output()[0].len, 1420);
        assert!(!t.pcb.on_packet_too_big(SeqNum::new(ISS + 5000), mtu, t.now), "a guess");
        assert!(!t.pcb.on_packet_too_big(SeqNum::new(ISS), 1500, t.now), "no news");
        assert!(t.pcb.on_packet_too_big(SeqNum::new(ISS), mtu, t.now));
        assert_eq!(t.pcb.path_mtu(), announced + 40);
        let sent = t.output();
        let (head, len) = (sent[0].header(), sent[0].len);
        assert_eq!((sent.len(), head.flags, head.seq, len), (1, SYN, SeqNum::new(ISS), 0));
        assert_eq!(head.options.mss.map(u32::from), Some(announced));
        assert_eq!(head.options.fast_open, None);
        assert!(!t.pcb.on_packet_too_big(SeqNum::new(ISS), 600, t.now), "there is no text any more");
        let options = Options { mss: Some(1460), ..Options::default() };
        let input = t.input(Header { options, ..t.raw(IRS, ISS + 1, SYN_ACK) }, &[]);
        assert!(input.events.has(Events::CONNECTED));
        assert_eq!(u32::from(t.pcb.mss()), announced);
        let fate = (t.pcb.syn_text(), t.pcb.fast_open_fail());
        assert_eq!(fate, (SynText::TooLong, Some(FastOpenFail::SynRepeated)));
    }
}

#[test]
fn a_report_of_the_network_ends_a_servers_connection_that_nobody_has_accepted() {
    let why = Unreachable::Host;
    let mut t = server(10);
    assert_eq!(t.pcb.on_unreachable(SeqNum::new(ISS + 1), why, false, t.now), Events::NONE, "a guess");
    assert_eq!(
        t.pcb.on_unreachable(SeqNum::new(ISS), why, true, t.now),
        Events::NONE,
        "it is the application's"
    );
    let events = t.pcb.on_unreachable(SeqNum::new(ISS), why, false, t.now);
    assert_eq!((events, t.pcb.unreachable()), (Events::UNREACHABLE.with(Events::CLOSED), Some(why)));
    let mut t = server(10);
    let _ = t.input(t.raw(IRS + 11, ISS + 1, ACK), &[]);
    t.write(100);
    assert_eq!(
        t.pcb.on_unreachable(SeqNum::new(ISS + 1), why, false, t.now),
        Events::NONE,
        "it is connected"
    );
}

#[test]
fn an_answer_to_text_that_has_waited_for_the_handshake_is_not_acknowledged_at_once() {
    // (bytes written, bytes on the SYN, acknowledged at once)
    for (written, on_syn, at_once) in [(400, 400, true), (900, 460, false)] {
        let mut t = client(Some(cookie()));
        t.snd = written;
        assert_eq!(t.output()[0].len, on_syn);
        let _ = t.input(syn_ack(&t, ISS + 1 + on_syn), &[]);
        let sent: u32 = t.output().iter().map(|segment| segment.len).sum();
        assert_eq!(sent, written - on_syn);
        let _ = t.input(t.ack_of(written - on_syn, WND), b"answer");
        assert_eq!(t.output().len(), usize::from(at_once), "{written}");
    }
}

#[test]
fn text_of_a_syn_that_is_sent_again_holds_no_later_text_back() {
    let mut t = client(Some(cookie()));
    t.snd = 300;
    t.output();
    let _ = t.input(syn_ack(&t, ISS + 1), &[]);
    assert_eq!(t.lens(), [300]);
    assert_eq!(t.write(50), [50], "Nagle's algorithm does not wait for it");
    assert_eq!(t.write(50), [], "but for that");
}

/// A network may drop what is marked (RFC 3168 section 6.1.1.1).
#[test]
fn a_server_whose_syn_ack_must_be_repeated_gives_up_marks() {
    let settings = Settings { ecn: EcnMode::On, ..plain() };
    let mut t = Script::connect(&settings);
    t.pcb = Pcb::accept_fast_open(&settings, &Accepted { ecn: true, ..accepted() }, 10, None, t.now);
    let sent = t.output();
    assert!(sent[0].header().flags.has(Flags::ECE), "{:?}", sent[0].header());
    let again = t.wait(secs(2));
    assert!(!again.is_empty());
    assert!(again.iter().all(|(_, sent)| sent.header().flags == SYN_ACK), "{:?}", again[0].1.header());
}

#[test]
fn a_syn_that_had_to_be_repeated_is_told() {
    let mut t = client(Some(cookie()));
    t.snd = 300;
    t.output();
    assert!(!t.pcb.is_fast_open_repeated());
    assert_eq!(t.wait(secs(1)).len(), 1);
    assert!(t.pcb.is_fast_open_repeated());
    assert!(!server(10).pcb.is_fast_open_repeated());
    assert_eq!([0, 10].map(|text| server(text).pcb.syn_text()), [SynText::None, SynText::Taken]);
}

#[test]
fn a_cookie_is_printed_without_what_it_is() {
    assert_eq!(format!("{:?}", cookie()), "Cookie(8 bytes)");
}

#[test]
fn a_syn_that_has_left_takes_no_text_along_and_a_servers_never_does() {
    let mut t = client(Some(cookie()));
    assert_eq!(t.pcb.syn_text_max(), 500 - 40);
    t.snd = 300;
    t.output();
    assert_eq!(t.pcb.syn_text_max(), 0);
    let t = Script { pcb: Pcb::accept_fast_open(&plain(), &accepted(), 10, None, t.now), ..t };
    assert_eq!(t.pcb.syn_text_max(), 0);
}

#[test]
fn the_round_trip_of_a_servers_syn_ack_is_measured_unless_it_was_repeated() {
    for (waits, rtt_ms) in [(80, Some(80)), (1_500, None)] {
        let mut t = server(10);
        let sent = t.wait(ms(waits));
        assert_eq!(sent.is_empty(), rtt_ms.is_some());
        let _ = t.input(t.raw(IRS + 11, ISS + 1, ACK), &[]);
        assert_eq!(t.pcb.srtt(), rtt_ms.map(ms));
    }
}

#[test]
fn the_option_of_the_first_syn_is_known_later() {
    for option in [Some(cookie()), Some(Cookie::REQUEST), None] {
        let mut t = client(option);
        t.output();
        assert_eq!(t.pcb.fast_open_option(), option);
    }
}

#[test]
fn a_new_cookie_goes_with_the_first_syn_ack() {
    let mut t = Script::connect(&plain());
    t.pcb = Pcb::accept_fast_open(&plain(), &accepted(), 10, Some(cookie()), t.now);
    assert_eq!(t.output()[0].header().options.fast_open, Some(cookie()));
    let sent = t.wait(secs(2));
    assert!(!sent.is_empty() && sent.iter().all(|(_, sent)| sent.header().options.fast_open.is_none()));
}

#[test]
fn the_text_of_the_syn_is_where_the_connection_begins() {
    assert_eq!(server(10).pcb.behind_syn(), SeqNum::new(IRS + 11));
    assert_eq!(Script::established(&plain()).pcb.behind_syn(), SeqNum::new(IRS + 1));
}

/// Karn's rule: the acknowledgment may be of either.
#[test]
fn a_syn_ack_that_answers_a_repeated_syn_measures_no_round_trip() {
    for (repeats, is_measured) in [(false, true), (true, false)] {
        let mut t = server(0);
        t.now = t.now + ms(300);
        if repeats {
            let _ = t.input(t.raw(IRS, 0, SYN), &[]);
            assert_eq!(t.output().len(), 1);
        }
        t.now = t.now + ms(10);
        let _ = t.input(t.seg(ACK), &[]);
        assert_eq!(t.pcb.srtt().is_some(), is_measured);
    }
}

#[test]
fn the_timer_of_the_syn_ack_ends_with_its_acknowledgment_and_that_of_text_begins() {
    let mut t = server(0);
    let _ = t.input(t.seg(ACK), &[]);
    assert_eq!((t.lens(), t.pcb.next_deadline()), (vec![], None));
    let mut t = server(0);
    t.now = t.now + ms(10);
    assert_eq!(t.write(100), [100]);
    t.now = t.now + ms(10);
    let _ = t.input(Header { ack: SeqNum::new(ISS + 1), ..t.seg(ACK) }, &[]);
    assert_eq!(t.pcb.running_timer(t.now).map(|timer| timer.left), Some(t.pcb.rto()));
}
