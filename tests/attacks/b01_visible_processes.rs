//! Attack b01: a box looks for a marked host process of the same user in `/proc`. It must neither
//! be listed nor be found by its PID.

use serde_json::{Value, json};
use tests::support::payload::{PYTHON, Payload};
use tests::support::process::LiveProcess;
use tests::support::scratch::token;

use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "b01", title: "see processes of the host", run };

const LIST: &str = r"
listed = {}
for name in os.listdir('/proc'):
    if name.isdigit():
        try:
            with open('/proc/%s/cmdline' % name, 'rb') as file:
                listed[name] = file.read(200).decode('latin-1').replace('\0', ' ')
        except OSError as error:
            listed[name] = name_of(error.errno)
direct = [number for number in range(1, 4096) if os.path.exists('/proc/%d' % number)]
victim = os.path.exists('/proc/%d/status' % DATA['victim'])
answer({'listed': listed, 'direct': direct, 'victim': victim})
";

fn run(context: &Context) -> Verdict {
    let mark = format!("mark-{}", token()?);
    let mut command = context.mode.identity().command(PYTHON);
    command.args(["-I", "-c", "import sys; print('here', flush=True); sys.stdin.read()", &mark]);
    let mut victim = LiveProcess::start(command)?;
    victim.line()?;
    let payload = Payload::new(LIST).with(json!({ "victim": victim.id() }));
    let outside = context.outside(&payload)?;
    control(outside["listed"].to_string().contains(&mark), || "the marked process is not listed outside".into())?;

    let inside = context.inside(&context.boxed(), &payload)?;
    victim.finish()?;
    let listed = inside["listed"].as_object().map_or(0, serde_json::Map::len);
    held(!inside["listed"].to_string().contains(&mark), || {
        format!("the host's process is listed: {}", inside["listed"])
    })?;
    held(inside["victim"] == false, || "the host's process is found by its number".into())?;
    // Init and the payload only.
    held(listed <= 2, || format!("{listed} processes are visible: {}", inside["listed"]))?;
    let direct = inside["direct"].as_array().map_or(0, Vec::len);
    let highest = inside["direct"].as_array().into_iter().flatten().filter_map(Value::as_u64).max();
    held(direct <= 3, || format!("process numbers found directly: {}", inside["direct"]))?;
    Ok(format!("{listed} processes, highest number {highest:?}; init shows as {}", inside["listed"]["1"]))
}
