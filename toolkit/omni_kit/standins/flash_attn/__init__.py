"""Functions of flash_attn."""

from .flash_attn_interface import flash_attn_func as flash_attn_func
from .flash_attn_interface import flash_attn_kvpacked_func as flash_attn_kvpacked_func
from .flash_attn_interface import flash_attn_qkvpacked_func as flash_attn_qkvpacked_func
from .flash_attn_interface import flash_attn_varlen_func as flash_attn_varlen_func
from .flash_attn_interface import flash_attn_varlen_kvpacked_func as flash_attn_varlen_kvpacked_func
from .flash_attn_interface import flash_attn_varlen_qkvpacked_func as flash_attn_varlen_qkvpacked_func

__version__ = "2.8.0"
