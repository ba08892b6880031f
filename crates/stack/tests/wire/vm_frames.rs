//! The example of Ethernet frames by function call: everything arrives, in one thread, without one of the stacks'.

#[test]
fn a_guest_receives_all_that_the_host_sends_by_function_call() {
    let _guard = crate::common::watchdog("a_guest_receives_all_that_the_host_sends_by_function_call");
    for bytes in [1, 3_000_000] {
        let [there, back] = crate::example::run(bytes).unwrap();
        // Full frames carry 1,460 bytes at most; each side also asks for the other's link address.
        assert!(there >= bytes.div_ceil(1460) && back >= 2, "{bytes}: {there} {back}");
    }
}
