//! Runs a case on the kernel and on Sockeye under each setting of `unix_locking`, and compares the
//! transcripts: Linux is the expectation.
//!
//! Invariants: a line may differ only as listed in [`DIFFERENCES`], or if the library's types have no such
//! call; a case in which nothing was compared fails.

use crate::common::settings::{Setting, UnixLocking};

use crate::common;
use crate::kernel::Kernel;
use crate::ours::Ours;
use crate::script::{Line, Run};

/// A line that is meant to read otherwise here.
struct Difference {
    /// The case in which, by its name.
    case: &'static str,
    /// The beginning of the call.
    call: &'static str,
    kernel: &'static str,
    sockeye: &'static str,
    why: &'static str,
}

/// The whole list. Anything else that differs fails the test.
const DIFFERENCES: &[Difference] = &[
    Difference {
        case: "credentials_without_room_are_cut_off",
        call: "recv",
        kernel: "\"one\", MSG_CTRUNC",
        sockeye: "\"one\"",
        why: "credentials always have room in a `RecvAncillary`, so they are never cut off",
    },
    Difference {
        case: "a_read_without_room_and_rights_that_wait",
        call: "recv(b, 0",
        kernel: "\"\", 1 rights",
        sockeye: "\"\"",
        why: "rights come with the first of their bytes, and no byte was read",
    },
    Difference {
        case: "a_read_without_room_and_rights_that_wait",
        call: "recv(b, 8",
        kernel: "\"x\"",
        sockeye: "\"x\", 1 rights",
        why: "as for the call before",
    },
    Difference {
        case: "a_filled_end_is_closed",
        call: "send(a",
        kernel: "EAGAIN",
        sockeye: "EPIPE",
        why: "a datagram is charged to its flow at the receiver, who says first that it reads no more; there it \
              is charged to the sender before the receiver is looked at",
    },
];

/// Makes a test of each named case: functions over [`Run`].
macro_rules! cases {
    ($($case:ident),+ $(,)?) => {
        mod on_both {
            $(
                #[test]
                fn $case() {
                    let _guard = crate::common::watchdog(stringify!($case));
                    crate::compare::compare(stringify!($case), super::$case, super::$case);
                }
            )+
        }
    };
}
pub(crate) use cases;

/// Runs both; panics with the transcripts side by side where they differ.
pub fn compare(case: &str, on_kernel: fn(&mut Run<Kernel>), on_sockeye: fn(&mut Run<Ours>)) {
    let kernel = run(Kernel::new(), on_kernel);
    for locking in UnixLocking::ALL {
        let stack = common::stack_with(|config| locking.set(config));
        let sockeye = run(Ours::new(&stack), on_sockeye);
        let title = format!("{case}, unix_locking = {locking}");
        if let Some(text) = difference(&title, case, &kernel, &sockeye) {
            panic!("{text}");
        }
        let compared = sockeye.iter().any(|line| line.answer.is_some());
        assert!(compared, "{title}: no call of this case can be expressed");
        common::assert_empty(&stack);
    }
}

/// One provider's transcript.
pub fn run<P: crate::provider::Provider>(provider: P, case: impl FnOnce(&mut Run<P>)) -> Vec<Line> {
    let mut run = Run::new(provider);
    case(&mut run);
    run.finish()
}

/// The report on transcripts that differ, headed by `title`.
pub fn difference(title: &str, case: &str, kernel: &[Line], sockeye: &[Line]) -> Option<String> {
    let agrees = |k: &Line, s: &Line| k.call == s.call && agree(case, k, s);
    let same = kernel.len() == sockeye.len() && kernel.iter().zip(sockeye).all(|(k, s)| agrees(k, s));
    (!same).then(|| format!("{title}: the transcripts differ\n{}", side_by_side(case, kernel, sockeye)))
}

fn agree(case: &str, kernel: &Line, sockeye: &Line) -> bool {
    let (Some(theirs), Some(ours)) = (&kernel.answer, &sockeye.answer) else { return true };
    theirs == ours
        || DIFFERENCES.iter().any(|d| {
            assert!(!d.why.is_empty(), "a difference without a reason");
            d.case == case && kernel.call.starts_with(d.call) && theirs == d.kernel && ours == d.sockeye
        })
}

fn side_by_side(case: &str, kernel: &[Line], sockeye: &[Line]) -> String {
    let mut text = String::new();
    for index in 0..kernel.len().max(sockeye.len()) {
        let (theirs, ours) = (kernel.get(index), sockeye.get(index));
        let call = theirs.or(ours).map_or("", |line| line.call.as_str());
        let answer = |line: Option<&Line>| match line {
            Some(Line { answer: Some(answer), .. }) => answer.clone(),
            Some(Line { answer: None, .. }) => "(no such call)".to_owned(),
            None => "(not reached)".to_owned(),
        };
        let same = theirs.zip(ours).is_some_and(|(k, s)| k.call == s.call && agree(case, k, s));
        text.push_str(&if same {
            format!("      {call} = {}\n", answer(theirs))
        } else {
            format!(" >>>  {call}\n        kernel:  {}\n        sockeye: {}\n", answer(theirs), answer(ours))
        });
    }
    text
}
