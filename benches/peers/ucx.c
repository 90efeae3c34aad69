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

static void connect_sides(void)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SINGLE,
    };
    ucp_ep_params_t ep_params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_config_t *config;
    ucp_context_h context;
    ucp_address_t *mine, *theirs;
    size_t size;

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
