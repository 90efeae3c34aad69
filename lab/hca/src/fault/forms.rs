//! All faults that can be asked for: how each is written, what it does, and how it is counted.

/// One fault, as a user asks for it.
struct FaultForm {
    /// How it is written.
    usage: &'static str,
    meaning: &'static str,
    /// The field of the report that counts it.
    counted: &'static str,
    /// What tagmatch does over its device `verbs`.
    tagmatch: &'static str,
}

const FORMS: &[FaultForm] = &[
    FaultForm {
        usage: "outage TIME",
        meaning: "All packets from and to the ports are lost. The ports know nothing of it. \
                  Senders repeat what is not answered, after their timeout (but 100 ms at least) \
                  and as often as `retry_cnt` says, and then fail (IBV_WC_RETRY_EXC_ERR).",
        counted: "fault_outage",
        tagmatch: "Connections outlive it if it is shorter than all attempts together (8.6 s by \
                   default). Then they end as unreachable (ETIMEDOUT).",
    },
    FaultForm {
        usage: "down TIME",
        meaning: "An outage that the ports say: by PORT_ERR, their state, and PORT_ACTIVE at its \
                  end.",
        counted: "fault_down",
        tagmatch: "As an outage; the log says which port is down.",
    },
    FaultForm {
        usage: "event NAME [NUMBER]",
        meaning: "An asynchronous event. PORT_ERR, PORT_ACTIVE, PKEY_CHANGE, SM_CHANGE and \
                  CLIENT_REREGISTER are said and change nothing. LID_CHANGE gives the ports other \
                  LIDs, so that packets to the old ones are lost; GID_CHANGE gives subnets other \
                  prefixes, and Ethernet ports other IPv4 addresses, so that no new path leads to \
                  the old ones. CQ_ERR, SRQ_ERR and QP_FATAL break queues, with their queue \
                  pairs: all queues, or the one with this number (`ibv_get_srq_num`, `qp_num`).",
        counted: "fault_event",
        tagmatch: "CQ_ERR, SRQ_ERR, QP_FATAL: the connections of the queue end, and the error \
                   names the event. LID_CHANGE, GID_CHANGE: what is connected stays, and no new \
                   connection is made, since the address that the worker gave out is wrong. The \
                   others: nothing.",
    },
    FaultForm {
        usage: "pkey ROW KEY",
        meaning: "A row of the table of partition keys gets another key, as `pkey 0 0x8001`; 0x0 \
                  empties the row. Queue pairs have the key that stands in their row. PKEY_CHANGE \
                  is said.",
        counted: "fault_pkey",
        tagmatch: "In the row that the worker has: no new connection is made, and what is \
                   connected ends, with this reason, unless the peer's row changes alike. In \
                   another row: nothing.",
    },
    FaultForm {
        usage: "gid ROW ADDRESS [v1]",
        meaning: "A row of the table of GIDs gets another address, as `gid 3 10.0.0.7` or `gid 0 \
                  fe80::1`; `-` empties the row. On Ethernet, the row is of RoCE version 2, or of \
                  version 1 with `v1`. GID_CHANGE is said.",
        counted: "fault_gid",
        tagmatch: "In the row that the worker has: what is connected stays, and no new connection \
                   is made. In another row: nothing.",
    },
    FaultForm {
        usage: "registrations PROBABILITY",
        meaning: "From now on, ibv_reg_mr(3) fails with this probability, as 20%, drawn from \
                  --seed (ENOMEM, as when the driver has no more keys). 0% ends it.",
        counted: "fault_registrations",
        tagmatch: "Making a worker fails (ENOMEM). A worker that exists sends long messages \
                   through its own memory, and counts them.",
    },
    FaultForm {
        usage: "overrun [NUMBER]",
        meaning: "The next completion finds its queue full: all completion queues, or the one \
                  with this number. The completion is lost, CQ_ERR is said, and the queue pairs \
                  of the queue fail.",
        counted: "fault_overrun",
        tagmatch: "All connections end, and the error names CQ_ERR.",
    },
    FaultForm {
        usage: "match WHEN",
        meaning: "The queue pair of the next message that matches an entry fails: `match before` \
                  the message, so that the entry stays; or `match after` it, so that the entry is \
                  used up while data that completes apart never does (that of messages longer \
                  than a packet and of rendezvous), and the sender is told of success. Each list \
                  of tags that exists has one such failure.",
        counted: "fault_match",
        tagmatch: "The connection ends, and the error names QP_FATAL.",
    },
    FaultForm {
        usage: "fatal TIME [OPERATIONS N]",
        meaning: "The device is lost: at once, with the Nth request of a send queue (`fatal 1s \
                  requests 100`), or with the Nth command to the driver (`fatal 1s commands 20`). \
                  Programs that have it open are told DEVICE_FATAL, nothing completes any more, \
                  and their commands fail (EIO) but for those that destroy \
                  (`mlx5_internal_err_ret_value`). For this time no program can open it (`EAGAIN`, \
                  `mlx5_ib_alloc_ucontext`). Then it has come back for programs that open it; \
                  commands of the others fail (EIO, `ib_uverbs_ioctl`).",
        counted: "fault_fatal",
        tagmatch: "All connections end, and the error names DEVICE_FATAL. A worker that is made \
                   later works once the device is back.",
    },
];

/// How all faults are written, for error messages.
pub(super) fn usages() -> String {
    FORMS.iter().map(|form| format!("`{}`", form.usage)).collect::<Vec<_>>().join(", ")
}

/// The table that the crate's page includes.
pub(crate) fn page() -> String {
    let head = "| fault | what it does | counted as | tagmatch over it |\n|---|---|---|---|\n";
    let row = |form: &FaultForm| {
        let FaultForm { usage, meaning, counted, tagmatch } = form;
        format!("| `{usage}` | {meaning} | `{counted}` | {tagmatch} |\n")
    };
    head.to_owned() + &FORMS.iter().map(row).collect::<String>()
}

/// All faults: how each is written, and what it means.
pub(crate) fn help() -> impl Iterator<Item = (String, String)> {
    FORMS.iter().map(|form| {
        let meaning = format!("{} In the report: {}.", form.meaning, form.counted);
        (form.usage.to_owned(), meaning)
    })
}
