//! Attack e16: ioctls that push characters into the input of the terminal's next reader. The kernel
//! reads only the low 32 bits of the request, so the filter must ignore high bits too.

use tests::support::payload::{ON_A_TERMINAL, PYTHON, Payload};

use crate::probe::{Context, Probe, Verdict, control, held, parse};

pub(crate) const PROBE: Probe = Probe { id: "e16", title: "TIOCSTI and TIOCLINUX on the box's terminal", run };

const PUSH: &str = r"
letter = ctypes.create_string_buffer(b'x')
seen = {'terminal': os.isatty(0)}
for name, request in (('TIOCSTI', 0x5412), ('TIOCLINUX', 0x541c)):
    for high in (0, 1 << 32, 0xffffffff << 32, 0xdeadbeef << 32):
        seen['%s %#x' % (name, high)] = call('ioctl', 0, request | high, letter)
    handle = os.open('/dev/tty', os.O_RDWR)
    seen[name + ' on /dev/tty'] = call('ioctl', handle, request, letter)
seen['TCGETS'] = call('ioctl', 0, 0x5401, ctypes.create_string_buffer(64))
sys.stdout.write('\n')
answer(seen)
";

fn run(context: &Context) -> Verdict {
    context.not_served("a served exec has no terminal")?;
    let payload = Payload::new(PUSH);
    let mut words = vec![PYTHON.into(), "-I".into(), "-c".into(), ON_A_TERMINAL.into()];
    words.extend(payload.arguments());
    let outside = parse("on a terminal outside", &context.bare(&words)?)?;
    control(outside["terminal"] == true, || format!("no terminal outside: {outside}"))?;
    // A kernel with TIOCSTI disabled (dev.tty.legacy_tiocsti=0) returns EIO.
    let pushes = outside["TIOCSTI 0x0"] == "ok" || outside["TIOCSTI 0x0"] == "EIO";
    control(pushes && outside["TIOCLINUX 0x0"] == "ENOTTY", || format!("unexpected outside: {outside}"))?;
    let high = outside["TIOCSTI 0x100000000"] == outside["TIOCSTI 0x0"];
    control(high, || format!("the kernel does look at the high bits: {outside}"))?;

    let run = context.boxed().flag("--tty").through(ON_A_TERMINAL, &[]);
    let inside = parse("on the box's terminal", &run.run_payload(&payload)?)?;
    control(inside["terminal"] == true && inside["TCGETS"] == "ok", || format!("no terminal inside: {inside}"))?;
    let mut tried = 0;
    for (act, outcome) in inside.as_object().into_iter().flatten().filter(|(act, _)| act.starts_with("TIOC")) {
        held(outcome == "EPERM", || format!("{act} → {outcome}"))?;
        tried += 1;
    }
    Ok(format!("{tried} requests refused with EPERM; outside {}", outside["TIOCSTI 0x0"]))
}
