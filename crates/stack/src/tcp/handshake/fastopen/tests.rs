//! Fast Open's memory, by itself.

use super::*;

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

fn host(n: u32) -> IpAddr {
    std::net::Ipv4Addr::from(0x0a01_0000 + n).into()
}

fn at(seconds: u64) -> Instant {
    Instant::from_micros(seconds * 1_000_000)
}

fn wish() -> Wish {
    Wish { no_cookie: false, mss_default: 536, loss_counts: Duration::from_secs(60) }
}

/// A handshake that asked and got this, with text of this fate.
fn lesson(answer: Option<Cookie>, text: SynText) -> Lesson {
    Lesson { asked: Some(Cookie::REQUEST), answer, mss: 1460, text, is_repeated: false }
}

impl Cache {
    fn learns(&self, server: IpAddr, answer: Option<Cookie>, text: SynText, now: Instant) -> bool {
        self.learn(server, &lesson(answer, text), now)
    }
}

#[test]
fn a_client_asks_then_knows_and_stays_within_its_bound() {
    let cache = Cache::default();
    let cookie = Cookie::new(b"12345678");
    let asks = FastOpenSyn { cookie: Some(Cookie::REQUEST), mss: 536 };
    assert_eq!(cache.syn(HERE, wish(), at(0)), Some(asks));
    let bare = FastOpenSyn { cookie: None, mss: 536 };
    assert_eq!(cache.syn(HERE, Wish { no_cookie: true, ..wish() }, at(0)), Some(bare));
    cache.learns(HERE, cookie, SynText::None, at(0));
    let knows = FastOpenSyn { cookie, mss: 1460 };
    assert_eq!(cache.syn(HERE, wish(), at(0)), Some(knows));
    for n in 0..2000 {
        cache.learns(host(n), cookie, SynText::None, at(1));
    }
    {
        let entries = cache.entries.lock();
        assert_eq!((entries.known.len(), entries.order.len()), (CACHE_MAX, CACHE_MAX));
        assert!(!entries.known.contains_key(&HERE), "the first to come is the first to go");
    }
    cache.clear();
    assert_eq!(cache.syn(host(1999), wish(), at(1)), Some(asks));
}

#[test]
fn a_cookie_that_nobody_asked_for_is_none() {
    let cache = Cache::default();
    let unasked = Lesson { asked: None, ..lesson(Cookie::new(b"12345678"), SynText::None) };
    cache.learn(HERE, &unasked, at(0));
    assert!(!cache.has_entries.load(Ordering::Relaxed), "a handshake without Fast Open leaves nothing");
    cache.learn(HERE, &Lesson { text: SynText::Taken, ..unasked }, at(0));
    let asks = FastOpenSyn { cookie: Some(Cookie::REQUEST), mss: 1460 };
    assert_eq!(cache.syn(HERE, wish(), at(0)), Some(asks), "only the MSS was learnt");
}

#[test]
fn a_server_without_a_cookie_is_asked_by_the_experimental_option_once() {
    let cache = Cache::default();
    let asked = |cache: &Cache| cache.syn(HERE, wish(), at(0)).and_then(|syn| syn.cookie).unwrap();
    let answer = |answer, is_repeated| {
        let lesson = Lesson { asked: Some(asked(&cache)), is_repeated, ..lesson(answer, SynText::None) };
        cache.learn(HERE, &lesson, at(0));
        asked(&cache)
    };
    let experimental = Cookie::REQUEST.experimental();
    assert_eq!(answer(None, true), Cookie::REQUEST, "a SYN that was repeated had no option");
    assert_eq!(answer(Some(Cookie::REQUEST), false), Cookie::REQUEST, "it knows the option");
    assert_eq!(answer(None, false), experimental);
    assert_eq!(answer(None, true), experimental);
    assert_eq!(answer(None, false), Cookie::REQUEST);
    assert_eq!(answer(None, false), Cookie::REQUEST);
    let cookie = Cookie::new(b"1234").map(Cookie::experimental);
    assert_eq!(answer(cookie, false), cookie.unwrap());
    let standard = Cookie::new(b"4321");
    assert_eq!(answer(standard, false), standard.unwrap(), "the latest is the best");
    assert_eq!(answer(None, false), standard.unwrap());
}

#[test]
fn each_lost_syn_disables_fast_open_to_the_server_for_longer() {
    let cache = Cache::default();
    let cookie = Cookie::new(b"12345678");
    cache.learns(HERE, cookie, SynText::None, at(0));
    let goes = |now| cache.syn(HERE, wish(), at(now)).is_some();
    assert!(cache.learns(HERE, None, SynText::Lost, at(0)));
    assert!(!goes(59) && goes(60));
    assert!(cache.learns(HERE, None, SynText::Lost, at(60)));
    assert!(!goes(179) && goes(180));
    let uncounted = Wish { loss_counts: Duration::ZERO, ..wish() };
    assert!(cache.syn(HERE, uncounted, at(60)).is_some(), "as on Linux unless told otherwise");
    assert!(!cache.learns(HERE, None, SynText::Taken, at(180)));
    assert!(goes(180));
}

#[test]
fn a_refusal_without_a_new_cookie_disables_fast_open_to_the_server() {
    let cache = Cache::default();
    let cookie = Cookie::new(b"12345678");
    cache.learns(HERE, cookie, SynText::None, at(0));
    let goes = |now| cache.syn(HERE, wish(), at(now)).is_some();
    assert!(!cache.learns(HERE, cookie, SynText::Refused, at(0)));
    assert!(goes(0));
    assert!(!cache.learns(HERE, None, SynText::Refused, at(0)));
    assert!(!goes(59) && goes(60));
}

#[test]
fn an_unknown_server_that_does_not_answer_gets_no_data_for_a_minute() {
    let cache = Cache::default();
    let free = Wish { no_cookie: true, ..wish() };
    cache.note_unanswered(HERE, at(0));
    assert_eq!(cache.syn(HERE, free, at(59)), None);
    assert_eq!(cache.syn(HERE, free, at(60)), Some(FastOpenSyn { cookie: None, mss: 536 }));
    assert!(cache.learns(HERE, None, SynText::Lost, at(60)));
    assert_eq!(cache.syn(HERE, free, at(179)), None);
}

#[test]
fn a_reset_keeps_a_place_for_a_minute() {
    let queue = Queue::default();
    assert!(!queue.reserve(at(0)), "a listener that did not ask has none");
    queue.set_len_max(2);
    assert!(queue.reserve(at(0)) && queue.reserve(at(0)) && !queue.reserve(at(0)));
    queue.give_back(None);
    assert!(queue.reserve(at(1)));
    queue.give_back(Some(at(2)));
    assert!(!queue.reserve(at(61)) && queue.reserve(at(62)));
}
