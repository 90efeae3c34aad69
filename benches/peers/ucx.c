/* The work over UCX's tag calls, without anything above them.
 *
 * The sender's rank is in the upper half of a tag, as runtimes put it there; a receive from any
 * source masks it out.
 *
 * BUILD is what `ucx_info -b` says of the library's checks; benches/peers/install defines it.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#include "measure.h"

#include <ucp/api/ucp.h>

typedef void *operation;

static int rank;
static ucp_worker_h worker;
static ucp_ep_h endpoint;

#define TRY(call)                                                          \
    do {                                                                   \
        ucs_status_t status_ = (call);                                     \
        if (status_ != UCS_OK)                                             \
            FAIL("%s: %s", #call, ucs_status_string(status_));             \
    } while (0)

static inline ucp_tag_t tag_of(int source, int tag)
{
    return (ucp_tag_t)(unsigned)source << 32 | (unsigned)tag;
}

static inline operation started(ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_ERR(request))
        FAIL("%s", ucs_status_string(UCS_PTR_STATUS(request)));
    return request;
}

static inline void wait_one(operation request)
{
    ucs_status_t status;
    if (request == NULL)
        return;
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
        ucp_worker_progress(worker);
    ucp_request_free(request);
    if (status != UCS_OK)
        FAIL("%s", ucs_status_string(status));
}

static inline operation start_send(const void *bytes, size_t size, int tag)
{
    static const ucp_request_param_t plain = {.op_attr_mask = 0};
    return started(ucp_tag_send_nbx(endpoint, bytes, size, tag_of(rank, tag), &plain));
}

static inline operation start_recv(void *bytes, size_t size, int tag, bool any)
{
    static const ucp_request_param_t plain = {.op_attr_mask = 0};
    ucp_tag_t mask = any ? 0xffffffff : ~(ucp_tag_t)0;
    return started(ucp_tag_recv_nbx(worker, bytes, size, tag_of(!rank, tag), mask, &plain));
}

static inline void cancel_all(operation *operations, int count)
{
    for (int i = 0; i < count; i++) {
        ucp_request_cancel(worker, operations[i]);
        while (ucp_request_check_status(operations[i]) == UCS_INPROGRESS)
            ucp_worker_progress(worker);
        ucp_request_free(operations[i]);
    }
}

#include "pair.h"

static ucp_context_h context;
static ucp_rkey_h rkey;
static uint64_t remote;

static operation start_put(const void *bytes, size_t size)
{
    static const ucp_request_param_t plain = {.op_attr_mask = 0};
    return started(ucp_put_nbx(endpoint, bytes, size, remote, rkey, &plain));
}

static operation start_get(void *bytes, size_t size)
{
    static const ucp_request_param_t plain = {.op_attr_mask = 0};
    return started(ucp_get_nbx(endpoint, bytes, size, remote, rkey, &plain));
}

static operation start_fetch_add(uint64_t *old)
{
    static const uint64_t one = 1;
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER,
        .datatype = ucp_dt_make_contig(8),
        .reply_buffer = old,
    };
    return started(ucp_atomic_op_nbx(endpoint, UCP_ATOMIC_OP_ADD, &one, 1, remote, rkey, &param));
}

static void flush(void)
{
    static const ucp_request_param_t plain = {.op_attr_mask = 0};
    wait_one(started(ucp_ep_flush_nbx(endpoint, &plain)));
}

static void progress(void)
{
    ucp_worker_progress(worker);
}

/* The region is memory that UCX allocates, as ucx_perftest's is. */
static void begin_rma(void)
{
    ucp_mem_map_params_t map = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .length = SIZE_MAX_BYTES,
        .flags = UCP_MEM_MAP_ALLOCATE,
    };
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    ucp_mem_h memory;
    void *packed, *theirs;
    size_t size;

    TRY(ucp_mem_map(context, &map, &memory));
    TRY(ucp_mem_query(memory, &attr));
    TRY(ucp_rkey_pack(context, memory, &packed, &size));
    one_sided.region = attr.address;
    remote = (uint64_t)attr.address;
    tell(&remote, sizeof remote);
    tell(&size, sizeof size);
    tell(packed, size);
    ucp_rkey_buffer_release(packed);
    hear(&remote, sizeof remote);
    hear(&size, sizeof size);
    theirs = malloc(size);
    if (theirs == NULL)
        FAIL("no memory");
    hear(theirs, size);
    TRY(ucp_ep_rkey_unpack(endpoint, theirs, &rkey));
    free(theirs);
}

static void connect_sides(void)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SINGLE,
    };
    ucp_ep_params_t ep_params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_config_t *config;
    ucp_address_t *mine, *theirs;
    size_t size;

    if (has_rma)
        params.features |= UCP_FEATURE_RMA | UCP_FEATURE_AMO64;
    one_sided.begin = begin_rma;
    one_sided.put = start_put;
    one_sided.get = start_get;
    one_sided.fetch_add = start_fetch_add;
    one_sided.flush = flush;
    one_sided.progress = progress;
    TRY(ucp_config_read(NULL, NULL, &config));
    TRY(ucp_init(&params, config, &context));
    ucp_config_release(config);
    TRY(ucp_worker_create(context, &worker_params, &worker));
    TRY(ucp_worker_get_address(worker, &mine, &size));
    tell(&size, sizeof size);
    tell(mine, size);
    ucp_worker_release_address(worker, mine);
    hear(&size, sizeof size);
    theirs = malloc(size);
    if (theirs == NULL)
        FAIL("no memory");
    hear(theirs, size);
    ep_params.address = theirs;
    TRY(ucp_ep_create(worker, &ep_params, &endpoint));
    free(theirs);
}

static void print_version(void)
{
    printf("version UCX %s, %s\n", ucp_get_version_string(), BUILD);
}
