//! Attack f11: two boxes of one user connect to each other, in both directions. Each listens on
//! every address and on an abstract socket and must reach only itself.

use serde_json::{Value, json};
use tests::support::payload::Payload;
use tests::support::scratch::token;

use crate::probe::{Context, Fault, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "f11", title: "one box reaches another", run };

/// Listens, prints its addresses, reads those of the other box, connects to both and prints who connected.
const MEET: &str = r"
import socket
stream = socket.socket()
stream.bind(('0.0.0.0', DATA['port']))
stream.listen(50)
datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagram.bind(('0.0.0.0', DATA['port']))
hidden = socket.socket(socket.AF_UNIX)
hidden.bind('\0' + DATA['name'])
hidden.listen(50)
answer(DATA)
def reach(where):
    seen = {}
    for address in ('127.0.0.1', '0.0.0.0', '127.0.0.2'):
        seen[address] = attempt(lambda: socket.create_connection((address, where['port']), 20))
        attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'hello', (address, where['port'])))
    seen['abstract'] = attempt(lambda: socket.socket(socket.AF_UNIX).connect('\0' + where['name']))
    return seen
other = json.loads(sys.stdin.readline())
answer(reach(other))
sys.stdin.readline()
for one in (stream, datagram, hidden):
    one.setblocking(False)
def count(act):
    total = 0
    try:
        while True:
            act()
            total += 1
    except BlockingIOError:
        return total
came = {'streams': count(stream.accept), 'datagrams': count(lambda: datagram.recvfrom(99))}
came['abstract'] = count(hidden.accept)
own = reach(DATA)
answer({'came': came, 'own': own})
";

fn parsed(line: &str) -> Result<Value, Fault> {
    serde_json::from_str(line).map_err(|_| Fault::Inconclusive(format!("not an answer: {line:?}")))
}

fn run(context: &Context) -> Verdict {
    let mut boxes = Vec::new();
    for index in 0..2 {
        // Different ports, so that a box that reaches itself is not taken for one that reaches the other.
        let data = json!({ "name": format!("rw-{}", token()?), "port": 20_001 + index });
        let mut live = context.boxed().start_payload(&Payload::new(MEET).with(data))?;
        let place = live.line()?;
        boxes.push((live, place));
    }
    let places: Vec<String> = boxes.iter().map(|(_, place)| place.clone()).collect();
    let mut reached = Vec::new();
    for (index, (live, _)) in boxes.iter_mut().enumerate() {
        live.send(format!("{}\n", places[1 - index]).as_bytes())?;
        reached.push(parsed(&live.line()?)?);
    }
    for (index, (mut live, _)) in boxes.into_iter().enumerate() {
        live.send(b"\n")?;
        let last = parsed(&live.line()?)?;
        live.finish()?;
        held(last["came"] == json!({ "streams": 0, "datagrams": 0, "abstract": 0 }), || {
            format!("box {index} was reached: {}", last["came"])
        })?;
        for (way, outcome) in last["own"].as_object().into_iter().flatten() {
            control(outcome == "ok", || format!("box {index} does not even reach itself by {way}: {outcome}"))?;
        }
    }
    for answer in &reached {
        for (way, outcome) in answer.as_object().into_iter().flatten() {
            held(outcome != "ok", || format!("connected by {way}: {answer}"))?;
        }
    }
    Ok(format!("each reaches itself, neither the other: {}", reached[0]))
}
