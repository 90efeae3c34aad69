//! Prints our tag-matching headers as bytes, for comparison with the installed C header's
//! (`ci/parts/headers`).

use tagmatch_fallback::wire::{AppCtx, Opcode, Rvh, Tmh};
use tagmatch_soft::Tag;

fn main() {
    for opcode in [Opcode::NoTag, Opcode::Rendezvous, Opcode::Fin, Opcode::Eager] {
        let tmh = Tmh { opcode, app_ctx: AppCtx(0x2122_2324), tag: Tag(0x3132_3334_3536_3738) };
        print("tmh", &tmh.emit());
    }
    let rvh = Rvh { va: 0x4142_4344_4546_4748, rkey: 0x5152_5354, len: 0x6162_6364 };
    print("rvh", &rvh.emit());
}

fn print(name: &str, bytes: &[u8]) {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{name} {}", bytes.join(" "));
}
