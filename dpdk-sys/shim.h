/* Functions that DPDK defines as static inline in its headers, as ordinary symbols. */
#pragma once
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

int shim_errno(void);
uint16_t shim_eth_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
uint16_t shim_eth_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
struct rte_mbuf *shim_pktmbuf_alloc(struct rte_mempool *pool);
/* Frees the whole chain. */
void shim_pktmbuf_free(struct rte_mbuf *mbuf);
/* The data of this segment, and how long it is. */
uint8_t *shim_pktmbuf_data(const struct rte_mbuf *mbuf, uint16_t *len);
struct rte_mbuf *shim_pktmbuf_next(const struct rte_mbuf *mbuf);
uint32_t shim_pktmbuf_pkt_len(const struct rte_mbuf *mbuf);
/* Room for len bytes at the end of a single-segment mbuf, or NULL. */
uint8_t *shim_pktmbuf_append(struct rte_mbuf *mbuf, uint16_t len);
