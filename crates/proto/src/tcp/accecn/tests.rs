//! The tables of RFC 9768.

use super::*;

fn ace(number: u8) -> Flags {
    Flags::from_ace(number)
}

#[test]
fn a_syn_asks_with_any_flags_but_none_and_those_of_rfc_3168() {
    for number in 0..8 {
        assert_eq!(
            is_asked_for(Flags::SYN.with(ace(number))),
            ![0b000, 0b011].contains(&number),
            "{number:03b}"
        );
    }
}

#[test]
fn each_syn_ack_is_answered_by_table_2() {
    let expected = [
        Answer::None,
        Answer::Classic,
        Answer::Accurate,
        Answer::Accurate,
        Answer::Accurate,
        Answer::Classic,
        Answer::Accurate,
        Answer::None,
    ];
    for (number, expected) in (0..).zip(expected) {
        assert_eq!(answer(Flags::SYN.with(Flags::ACK).with(ace(number))), expected, "{number:03b}");
    }
}

#[test]
fn the_field_of_a_syn_is_told_by_three_flags() {
    let table = [(IpEcn::NotEct, 0b010), (IpEcn::Ect1, 0b011), (IpEcn::Ect0, 0b100), (IpEcn::Ce, 0b110)];
    for (bits, (field, number)) in [0, 1, 2, 3].into_iter().zip(table) {
        let (by_bits, flags) = (IpEcn::from_bits(bits), Flags::of_ip(bits));
        assert_eq!((field.bits(), by_bits, IpEcn::of(flags)), (bits, field, field));
        assert_eq!((reflected(field).ace(), told(number)), (number, Some(field)));
        assert_eq!(reflected(field).without(Flags::ACE), Flags::NONE);
    }
    assert!([0b000, 0b001, 0b101, 0b111].iter().all(|number| told(*number).is_none()));
}

#[test]
fn a_router_may_mark_and_nothing_else() {
    use IpEcn::{Ce, Ect0, Ect1, NotEct};
    let all = [NotEct, Ect1, Ect0, Ce];
    let may: Vec<_> =
        all.iter().flat_map(|a| all.map(|b| (*a, b))).filter(|(a, b)| a.may_become(*b)).collect();
    let expected = [
        (NotEct, NotEct),
        (Ect1, Ect1),
        (Ect1, Ect0),
        (Ect1, Ce),
        (Ect0, Ect1),
        (Ect0, Ect0),
        (Ect0, Ce),
        (Ce, Ce),
    ];
    assert_eq!(may, expected);
}

fn option(kind: u8, fields: &[u32]) -> AccEcnOption {
    let bytes: Vec<u8> = fields.iter().flat_map(|field| field.to_be_bytes()[1..].to_vec()).collect();
    AccEcnOption::parse(kind, &bytes)
}

#[test]
fn an_option_is_read_in_both_orders_and_in_part() {
    let values = |option: AccEcnOption| [0, 1, 2].map(|index| option.value(index));
    let (kind_0, kind_1) = (AccEcnOption::KIND_0, AccEcnOption::KIND_1);
    assert_eq!(values(option(kind_1, &[1, 2, 3])), [Some(1), Some(2), Some(3)]);
    assert_eq!(values(option(kind_0, &[1, 2, 3])), [Some(3), Some(2), Some(1)]);
    assert_eq!(values(option(kind_1, &[1, 2])), [Some(1), Some(2), None]);
    assert_eq!(values(option(kind_0, &[0xff_fffe])), [None, None, Some(0xff_fffe)]);
    assert_eq!(values(option(kind_0, &[])), [None; 3]);
    let odd = AccEcnOption::parse(kind_1, &[0, 0, 1, 0, 7]);
    assert_eq!((values(odd), odd.padded_len()), ([Some(1), None, None], 8));
    assert_eq!(values(option(kind_1, &[1, 2, 3, 4])), [Some(1), Some(2), Some(3)]);
}

#[test]
fn as_many_counters_as_fit_are_written() {
    let counts = |room: usize| AccEcnOption::first().within(room).map(|option| option.fields().len());
    assert_eq!([0, 4, 7, 8, 11, 12, 40].map(counts), [None, None, None, Some(2), Some(2), Some(3), Some(3)]);
}

fn server() -> AccEcn {
    AccEcn::server(SynEcn::default())
}

fn acked(number: u8, packets: u32, option: Option<&AccEcnOption>) -> Acked<'_> {
    Acked { flags: ace(number), option, bytes: packets * 1000, packets, sent: 0, mss: 1000 }
}

#[test]
fn the_flags_count_from_five_and_wrap() {
    let mut state = server();
    let mut told = vec![state.flags().ace()];
    for _ in 0..9 {
        state.count(Flags::CE, 0, 1);
        told.push(state.flags().ace());
    }
    assert_eq!(told, [5, 6, 7, 0, 1, 2, 3, 4, 5, 6]);
    let mut sender = server();
    let news: Vec<u32> = told.iter().map(|number| sender.take_ack(&acked(*number, 1, None))).collect();
    assert_eq!(news, [0, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(sender.info().delivered_ce, 9);
}

#[test]
fn an_acknowledgment_of_more_packets_than_the_flags_count_means_the_most_unless_the_option_says_otherwise() {
    let news = |packets, number, option: Option<&AccEcnOption>| {
        // Not a path that joins acknowledgments.
        AccEcn { packets_avg: 64, ..server() }.take_ack(&acked(number, packets, option))
    };
    assert_eq!([1, 7, 8, 15, 16, 17].map(|packets| news(packets, 5, None)), [0, 0, 8, 8, 16, 16]);
    assert_eq!([1, 7, 8, 9, 10].map(|packets| news(packets, 6, None)), [1, 1, 1, 9, 9]);
    let told = |ce: u32, ect_0: u32| option(AccEcnOption::KIND_1, &[1, ce, 1 + ect_0]);
    assert_eq!(news(16, 5, Some(&told(0, 16_000))), 0, "none came marked");
    assert_eq!(news(20, 5, Some(&told(20_000, 0))), 16, "all did, some of them short");
    assert_eq!(news(12, 6, Some(&told(9000, 0))), 9, "more bytes than one packet has");
    assert_eq!(news(12, 6, Some(&told(900, 0))), 1);
    assert_eq!(news(24, 6, Some(&told(9000, 0))), 9);
}

/// An acknowledgment of nine packets says one more, or nine. Between what one and half of nine have, the bytes that came marked tell.
#[test]
fn just_as_many_marked_bytes_as_the_flags_say_are_no_reason_for_more() {
    let told = |packets: u32, delta: u32, marked: Option<u32>, is_joined: bool| {
        let option = AccEcnOption::first();
        likely(delta, &acked(0, packets, Some(&option)), marked, is_joined)
    };
    for (packets, delta, marked, news) in [
        (7, 3, 7_000, 3),
        (8, 0, 1, 8),
        (9, 1, 0, 1),
        (9, 1, 1_000, 1),
        (9, 1, 1_001, 9),
        (15, 1, 1_001, 9),
        // Four packets and a half are more than half of nine by none.
        (9, 4, 4_000, 4),
        (12, 4, 6_000, 12),
        (15, 7, 7_000, 7),
        (15, 7, 7_001, 15),
        (16, 0, 16_000, 16),
        (16, 0, 15_999, 16),
        (16, 0, 8_000, 8),
        (16, 0, 7_000, 0),
        (16, 0, 7_001, 8),
        (24, 3, 11_000, 11),
        (24, 3, 24_000, 19),
    ] {
        assert_eq!(told(packets, delta, Some(marked), false), news, "{packets} {delta} {marked}");
    }
    assert_eq!(
        [(7, false), (9, true), (9, false)].map(|(packets, is_joined)| told(packets, 1, None, is_joined)),
        [1, 1, 9]
    );
}

#[test]
fn counters_of_bytes_wrap_and_do_not_go_back_for_good() {
    let mut state = server();
    let ect_0 = |value: u32| option(AccEcnOption::KIND_0, &[value & 0xff_ffff, 0, 1]);
    let delivered = |state: &AccEcn| state.info().delivered.ect_0;
    for (value, expected) in
        [(1, 0), (0x80_0000, 0x7f_ffff), (0xff_ffff, 0xff_fffe), (0x100_0005, 0x100_0004)]
    {
        state.take_ack(&acked(5, 1, Some(&ect_0(value))));
        assert_eq!(delivered(&state), expected);
    }
    // An old segment, and the next.
    state.take_ack(&acked(5, 1, Some(&ect_0(0xff_ffff))));
    assert_eq!((delivered(&state), state.estimate), (0xff_fffe, None));
    state.take_ack(&acked(5, 1, Some(&ect_0(0x100_0005))));
    assert_eq!(delivered(&state), 0x100_0004);
    // Without the option it goes on as before.
    state.take_ack(&acked(5, 2, None));
    assert_eq!(delivered(&state), 0x100_0004 + 2000);
}

#[test]
fn cleared_and_late_options_are_not_read() {
    for fields in [&[0, 0, 1][..], &[1, 0, 0], &[0]] {
        let mut state = server();
        state.take_first(ace(0b010), true, Some(&option(AccEcnOption::KIND_1, fields)));
        let info = state.info();
        assert_eq!((info.option_seen, info.fail.bits()), (OptionSeen::Cleared, 8));
        state.take_ack(&acked(5, 1, Some(&option(AccEcnOption::KIND_1, &[1, 500, 1]))));
        assert_eq!(state.info().delivered.ce, 0);
    }
    let mut state = server();
    state.take_first(ace(0b010), true, None);
    state.take_ack(&Acked { sent: UNSEEN_MAX - 1, ..acked(5, 1, None) });
    assert_eq!(state.info().fail.bits(), 0);
    state.take_ack(&Acked { sent: UNSEEN_MAX, ..acked(5, 1, None) });
    assert_eq!((state.info().fail.bits(), state.info().option_seen), (8, OptionSeen::No));
}

#[test]
fn the_first_segment_shows_whether_the_syn_ack_was_changed() {
    let fail = |number, is_bare| {
        let mut state = server();
        assert!(state.take_first(ace(number), is_bare, None) && !state.take_first(ace(0), true, None));
        assert_eq!(state.flags().has(Flags::ECT), state.info().fail == Fail::default());
        state.info().fail.bits()
    };
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(|number| fail(number, true)), [2, 0, 0, 2, 2, 0, 2, 0]);
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(|number| fail(number, false)), [2, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_client_reflects_once_and_only_on_a_bare_acknowledgment() {
    let syn_ack = ace(0b010).with(Flags::ECT);
    let mut state = AccEcn::client(syn_ack, Some(&AccEcnOption::first()));
    assert_eq!((state.info().fail.bits(), state.sends_option()), (0, true));
    assert_eq!((state.reflect(true), state.reflect(true)), (Some(ace(0b100)), None));
    let mut state = AccEcn::client(syn_ack, None);
    assert!(!state.sends_option() && state.option(40).is_none());
    assert_eq!((state.reflect(false), state.reflect(true)), (None, None));
    let changed = AccEcn::client(ace(0b100), None);
    assert_eq!((changed.info().fail.bits(), changed.flags()), (2, ace(5)));
}

#[test]
fn marks_are_told_at_once_when_they_begin_and_from_two_on() {
    let mut state = AccEcn::server(SynEcn { came_with: IpEcn::Ect0, is_withdrawn: false });
    assert!(!state.count(Flags::ECT, 100, 1));
    assert!(state.count(Flags::CE, 100, 1), "a change");
    state.on_sent(false);
    assert!(!state.count(Flags::CE, 100, 1));
    assert!(state.count(Flags::CE, 100, 1));
    assert!(
        !state.count(Flags::ECT, 0, 1) && !state.count(Flags::CE, 0, 1),
        "acknowledgments are not acknowledged"
    );
    let received = state.info().received;
    assert_eq!((state.info().received_ce, received.ce, received.ect_0, received.ect_1), (4, 300, 100, 0));
}

#[test]
fn an_option_has_room_for_what_is_new_or_is_left_out() {
    let mut state = AccEcn::client(ace(0b010), Some(&AccEcnOption::first()));
    let count = |state: &AccEcn, room| state.option(room).map(|option| option.fields().len());
    assert_eq!((count(&state, 8), count(&state, 12)), (Some(2), Some(3)));
    state.count(Flags::ECT, 70, 1);
    assert_eq!((state.needed(), count(&state, 8), count(&state, 12)), (3, None, Some(3)));
    state.on_sent(true);
    assert_eq!((state.needed(), count(&state, 8)), (0, Some(2)));
    assert_eq!(state.option(12).unwrap().value(2), Some(71));
}

#[test]
fn a_path_that_joins_acknowledgments_is_not_suspected() {
    let mut state = server();
    assert_eq!(state.take_ack(&acked(5, 10, None)), 0);
    assert_eq!(state.take_ack(&acked(4, 10, None)), 7);
    for _ in 0..200 {
        state.take_ack(&acked(4, 1, None));
    }
    assert_eq!(state.take_ack(&acked(4, 10, None)), 8);
}

#[test]
fn options_that_do_not_arrive_are_not_sent_any_more() {
    let mut state = AccEcn::client(ace(0b010), Some(&AccEcnOption::first()));
    for (duplicate, sends) in [(1, true), (1001, true), (1, true), (1, false), (1, false)] {
        state.on_duplicate(SeqNum::new(duplicate));
        assert_eq!(state.sends_option(), sends);
    }
    assert_eq!((state.info().fail.bits(), state.option(40)), (4, None));
}

#[test]
fn a_server_whose_client_has_asked_once_and_not_again_sends_nothing_as_ecn_capable() {
    let state = AccEcn::server(SynEcn { came_with: IpEcn::NotEct, is_withdrawn: true });
    assert_eq!((state.flags(), state.info().fail.bits()), (ace(5), 1));
}

#[test]
fn the_packets_of_an_acknowledgment_are_averaged() {
    let mut accecn = AccEcn::server(Default::default());
    let mut average = |packets: u32, times: u32| {
        (0..times).for_each(|_| accecn.count_packets(packets));
        accecn.packets_avg >> PACKETS_SHIFT
    };
    assert_eq!([average(8, 1), average(8, 1_000)], [8, 8]);
    // A sixty-fourth of the way at a time.
    assert!((3..=5).contains(&average(0, 45)));
    assert_eq!(average(2, 1_000), 2);
}

/// Four packets an acknowledgment on average, in sixty-fourths: these nine are part of it.
#[test]
fn a_path_joins_acknowledgments_from_more_than_four_packets_on_average_on() {
    for (packets_avg, news) in [(250, 9), (251, 1)] {
        let mut state = AccEcn { packets_avg, ..server() };
        assert_eq!(state.take_ack(&acked(6, 9, None)), news, "{} after it", state.packets_avg);
    }
}

#[test]
fn only_text_is_news_for_the_counters_of_bytes() {
    for (text_len, needed) in [(0, 0), (1, 3)] {
        let mut state = AccEcn::client(ace(0b010), Some(&AccEcnOption::first()));
        state.count(Flags::ECT, text_len, 1);
        assert_eq!((state.needed(), state.info().received.ect_0), (needed, text_len));
    }
}

/// An empty option says that more may come, and nothing of what came before it.
#[test]
fn an_empty_option_is_told_from_one_with_counters() {
    let (empty, counters) = (option(AccEcnOption::KIND_1, &[]), AccEcnOption::first());
    for (options, seen) in [
        (vec![], OptionSeen::No),
        (vec![empty], OptionSeen::Empty),
        (vec![counters], OptionSeen::Counters),
        (vec![empty, counters], OptionSeen::Counters),
        (vec![counters, empty], OptionSeen::Counters),
    ] {
        let mut state = server();
        for option in &options {
            state.take_ack(&acked(5, 1, Some(option)));
        }
        assert_eq!(state.info().option_seen, seen, "{options:?}");
    }
}
